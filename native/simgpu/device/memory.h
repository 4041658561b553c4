// The books of a simulated device's memory: what is allocated, who is charged for it, and where a process sees it.
//
// Nothing here locks: the device process calls it under its one mutex.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/wire.h"

namespace vgpu::sim {

// What one process is charged on one device, and what the device has given away. Only Block and Charge write them.
struct Ledger {
  uint64_t total = 0;  // bytes; the capacity of a device, unused for a process
  uint64_t used = 0;   // bytes
};

// Bytes charged to a device and a process for as long as this object lives.
class Charge {
 public:
  static std::optional<Charge> take(Ledger& device, std::shared_ptr<Ledger> process, uint64_t bytes);
  Charge(Charge&& other) noexcept;
  Charge& operator=(Charge&&) = delete;
  ~Charge();
  void move_to(std::shared_ptr<Ledger> process);
  const Ledger* process() const { return process_.get(); }

 private:
  Charge(Ledger& device, std::shared_ptr<Ledger> process, uint64_t bytes);
  Ledger* device_;
  std::shared_ptr<Ledger> process_;
  uint64_t bytes_;
};

// A descriptor of `size` bytes of memory to share with a process, which cannot shrink it under us; -1 when the host has none.
int shareable_memory(const char* name, uint64_t size);

// Physical memory of a device: sparse, so that a page costs the host memory only once it is written.
class Block {
 public:
  // nullptr when the device has less than `size` bytes left, or the host has no address space.
  static std::shared_ptr<Block> create(Ledger& device, std::shared_ptr<Ledger> process, uint32_t device_index, uint64_t size);
  // Memory that the process maps too, from the descriptor `shared`: managed memory when there is a charge, else pinned host memory.
  static std::shared_ptr<Block> create_shared(std::optional<Charge> charge, uint32_t device_index, uint64_t size, int shared);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  char* data() const { return data_; }
  // Zeroes a stretch and gives its whole pages back to the host.
  void zero(char* begin, uint64_t size);
  uint64_t size() const { return size_; }
  uint32_t device() const { return device_; }
  uint32_t handle_types() const { return handle_types_; }  // as which it may be exported: CUmemAllocationHandleType
  void set_handle_types(uint32_t types) { handle_types_ = types; }
  bool charged_to(const Ledger* process) const { return charge_ && charge_->process() == process; }
  // Another process holds an exported block whose creator is gone: it is charged from now on.
  void charge_to(std::shared_ptr<Ledger> process) { charge_->move_to(std::move(process)); }

 private:
  Block(std::optional<Charge> charge, char* data, uint64_t size, uint32_t device);
  std::optional<Charge> charge_;
  char* data_;
  uint64_t size_;
  uint32_t device_;
  uint32_t handle_types_ = 0;
  bool shared_ = false;  // with the process
};

// Hands out ranges of [base, base + size), first fit, and takes them back.
class RangeAllocator {
 public:
  RangeAllocator(uint64_t base, uint64_t size) { free_[base] = size; }
  // The lowest range that fits, or exactly the one at `hint` if that is free; 0 when there is none.
  uint64_t take(uint64_t size, uint64_t alignment, uint64_t hint = 0);
  void give_back(uint64_t base, uint64_t size);

 private:
  uint64_t carve(std::map<uint64_t, uint64_t>::iterator range, uint64_t begin, uint64_t size);
  std::map<uint64_t, uint64_t> free_;  // base -> size, never two that touch
};

struct Mapping {
  uint64_t size = 0;
  std::shared_ptr<Block> block;
  uint64_t offset = 0;           // into the block
  uint32_t readable = 0;         // a bit for each device that may read
  uint32_t writable = 0;         // likewise
  Memory kind = Memory::kDevice;
  uint64_t context = 0;          // whose end frees it; 0 for VMM mappings, which belong to the process
  uint64_t id = 0;               // unlike the address never used twice
  // An access may run on into the next mapping of VMM; it never enters or leaves an allocation.
  bool joins_neighbours() const { return kind == Memory::kMapped; }
};

// For copies, which reach every device's memory without peer access.
constexpr uint32_t kAnyDevice = UINT32_MAX;

// Where a stretch of an access lies; holds the block, so that it outlives an unmapping in the middle of the access.
struct Span {
  std::shared_ptr<Block> block;
  char* data;
  uint64_t size;
};

// The device addresses of one process, all devices in one space.
class AddressSpace {
 public:
  std::map<uint64_t, Mapping>& mappings() { return mappings_; }
  // The mapping that holds `address`, or mappings().end().
  std::map<uint64_t, Mapping>::iterator find(uint64_t address);
  // Every byte of [address, address + size) mapped for `device` (or kAnyDevice), else nothing: the access is a fault.
  std::optional<std::vector<Span>> resolve(uint64_t address, uint64_t size, uint32_t device, bool write);

 private:
  std::map<uint64_t, Mapping> mappings_;
};

}  // namespace vgpu::sim
