// What the device can compute: the kernels of wire.h, fills and copies, on a process's address space.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "common/wire.h"
#include "memory.h"

namespace vgpu::sim {

// A launch with its parameters read, or a fill or copy.
struct Work {
  uint64_t duration = 0;  // ns of device time
  struct Operand {
    uint64_t address;
    bool written;
  };
  std::vector<Operand> operands;  // each `count` floats
  uint64_t count = 0;
  float scalar = 0;
  Kernel kernel = Kernel::kUnknown;
};

// CUresult: INVALID_VALUE when the parameters are too short, NOT_SUPPORTED for a kernel that the device does not know.
int32_t read_launch(const LaunchRequest& request, const std::vector<char>& parameters, Work& work);

// How data are moved: large amounts without the machine's mutex, so that nobody's calls wait for them, and in pieces, so that an operation
// dropped meanwhile ends soon. What is moved stays alive, for spans hold their memory.
class Mover {
 public:
  // `mutex` is held by the caller of what a Mover is given to.
  Mover(std::mutex& mutex, const std::atomic<bool>& dropped) : mutex_(mutex), dropped_(dropped) {}

  // Calls move(offset, size) until all `bytes` are done.
  template <class Move>
  void pieces(uint64_t bytes, Move move) const {
    const bool large = bytes > kPiece;
    if (large) mutex_.unlock();
    for (uint64_t offset = 0; offset < bytes && !dropped_; offset += kPiece) move(offset, std::min(kPiece, bytes - offset));
    if (large) mutex_.lock();
  }

 private:
  static constexpr uint64_t kPiece = 1 << 20;
  std::mutex& mutex_;
  const std::atomic<bool>& dropped_;
};

// CUresult: ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, and nothing was computed then. `check` only looks at the addresses.
int32_t check(const Work& work, AddressSpace& space, uint32_t device);
int32_t run(const Work& work, AddressSpace& space, uint32_t device, const Mover& mover);

// Between packed host rows and the device. CUresult: ILLEGAL_ADDRESS, and nothing was copied then.
int32_t copy_in(AddressSpace& space, Rows to, uint64_t width, uint64_t height, const char* from, const Mover& mover);
int32_t copy_out(AddressSpace& space, Rows from, uint64_t width, uint64_t height, char* to, const Mover& mover);
int32_t copy_device(AddressSpace& space, Rows to, Rows from, uint64_t width, uint64_t height, const Mover& mover);
int32_t fill(AddressSpace& space, Rows to, uint64_t width, uint64_t height, uint32_t value, uint32_t element, const Mover& mover);
// Whether every row is mapped.
bool mapped(AddressSpace& space, Rows rows, uint64_t width, uint64_t height, bool write);

uint64_t host_copy_duration(uint64_t bytes);    // ns
uint64_t device_copy_duration(uint64_t bytes);  // ns

}  // namespace vgpu::sim
