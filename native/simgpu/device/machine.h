// The simulated machine: its devices, and the processes that use them. Everything here is under `Machine::mutex`.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/spec.h"
#include "common/wire.h"
#include "condition.h"
#include "memory.h"
#include "timeline.h"

namespace vgpu::sim {

struct Device {
  uint32_t index = 0;
  std::array<uint8_t, 16> uuid{};
  uint64_t context_overhead = 0;
  Ledger ledger;
  Timeline timeline;
  Condition work;  // for the engine thread: something was submitted or dropped
};

struct Context {
  uint64_t id = 0;
  uint32_t device = 0;
  uint32_t flags = 0;
  bool primary = false;
  std::shared_ptr<Order> order = std::make_shared<Order>();
  std::shared_ptr<Stream> per_thread;
};

struct StreamEntry {
  uint64_t context;
  uint32_t flags;
  int32_t priority;
  std::shared_ptr<Stream> stream;
};

struct EventEntry {
  uint64_t context;
  uint32_t flags;
  std::shared_ptr<Operation> recorded;  // none before the first record
};

struct PhysicalHandle {
  std::shared_ptr<Block> block;
  uint32_t references;
};

// What a process has on one device.
struct Seat {
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  std::shared_ptr<Lane> lane = std::make_shared<Lane>();
  std::optional<Charge> overhead;  // while it has a context
  uint64_t primary = 0;            // the primary context, 0 while nobody retains it
  uint32_t primary_retained = 0, primary_flags = 0;
  uint64_t pool_used = 0, pool_high = 0;
};

// A process, known by its pid.
struct Client {
  Client(pid_t process, uint32_t its_program, size_t devices) : pid(process), program(its_program), seats(devices) {}
  pid_t pid;
  uint32_t program;  // HelloRequest
  bool gone = false;  // dead, or another program runs under its pid now
  uint32_t connections = 0;
  std::vector<Seat> seats;
  std::map<uint64_t, Context> contexts;
  std::map<uint64_t, StreamEntry> streams;
  std::map<uint64_t, EventEntry> events;
  AddressSpace space;
  RangeAllocator ranges{uint64_t{1} << 48, uint64_t{1} << 46};  // not canonical on x86-64: a host access faults
  std::map<uint64_t, uint64_t> reservations;                    // VMM: base -> size
  std::map<uint64_t, PhysicalHandle> handles;
  std::deque<uint64_t> host_calls;                                // cuLaunchHostFunc: cookies of those that are due
  std::map<uint64_t, std::shared_ptr<Operation>> open_host_calls;  // what waits for them to return
};

// Physical memory on its way between processes. The descriptor that a process gets is a pipe's write end; while anybody holds it, the
// memory lives. Both ends have one inode, by which a descriptor that comes back is known.
class Exports {
 public:
  Exports();
  // A new descriptor for the block, or -1.
  int add(std::shared_ptr<Block> block);
  std::shared_ptr<Block> find(int descriptor) const;
  // Readable when a descriptor's last holder has closed it; then call `collect`.
  int poll_descriptor() const { return epoll_; }
  void collect();

 private:
  struct Entry {
    int read_end;
    std::shared_ptr<Block> block;
  };
  int epoll_;
  std::map<uint64_t, Entry> entries_;  // by inode
};

class Machine {
 public:
  // `name` distinguishes machines: with the index it makes the devices' UUIDs.
  Machine(const Spec& spec, const std::string& name);

  std::mutex mutex;
  Condition finished;  // an operation finished, or a client is gone
  std::vector<std::unique_ptr<Device>> devices;
  std::map<pid_t, std::shared_ptr<Client>> clients;
  Exports exports;

  uint64_t next_id() { return ++last_id_; }
  // The client of that pid; a new one if there is none, or only one of another program.
  std::shared_ptr<Client> enter(pid_t pid, uint32_t program);
  // Takes away all that the client has.
  void retire(const std::shared_ptr<Client>& client);

  // CUresult.
  int32_t create_context(Client& client, uint32_t device, uint32_t flags, bool primary, uint64_t& id);
  // Drops its work and frees what was allocated in it.
  void reset_context(Client& client, Context& context);
  void destroy_context(Client& client, uint64_t id);
  // Removes an allocation from the books and the address space.
  void free(Client& client, std::map<uint64_t, Mapping>::iterator mapping);

  // Everyone who waits for an operation looks again.
  void wake();

  // Runs a device's timeline in real time; never returns.
  [[noreturn]] void run_engine(Device& device);

 private:
  void clear_context(Client& client, Context& context);
  void open_streams(Client& client, Context& context);
  uint64_t last_id_ = 1000;  // above what could be taken for a driver's own stream
};

}  // namespace vgpu::sim
