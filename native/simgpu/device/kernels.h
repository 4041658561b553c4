// What the device can compute: the kernels of wire.h, fills and copies, on a process's address space.
#pragma once
#include <cstdint>
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

// Runs it, or with `dry` only looks at the addresses. CUresult: ILLEGAL_ADDRESS, MISALIGNED_ADDRESS.
int32_t run(const Work& work, AddressSpace& space, uint32_t device, bool dry);

// Between packed host rows and the device. CUresult: ILLEGAL_ADDRESS, and nothing was copied then.
int32_t copy_in(AddressSpace& space, Rows to, uint64_t width, uint64_t height, const char* from);
int32_t copy_out(AddressSpace& space, Rows from, uint64_t width, uint64_t height, char* to);
int32_t copy_device(AddressSpace& space, Rows to, Rows from, uint64_t width, uint64_t height);
int32_t fill(AddressSpace& space, Rows to, uint64_t width, uint64_t height, uint32_t value, uint32_t element);
// Whether every row is mapped.
bool mapped(AddressSpace& space, Rows rows, uint64_t width, uint64_t height, bool write);

uint64_t host_copy_duration(uint64_t bytes);    // ns
uint64_t device_copy_duration(uint64_t bytes);  // ns

}  // namespace vgpu::sim
