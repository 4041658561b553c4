// Host memory that the driver gave or knows: pinned, managed and registered ranges of this process, by their addresses.
#pragma once
#include <cstdint>

#include "driver.h"

namespace vgpu::sim {

enum class HostKind { kPinned, kManaged, kRegistered };

struct HostRange {
  uint64_t address;
  uint64_t size;      // bytes as asked for
  uint64_t context;
  HostKind kind;
  unsigned flags;     // of cuMemHostAlloc or cuMemHostRegister
};

// Pinned or managed memory that the device process sees too.
CUresult allocate_host_memory(void** address, size_t size, Memory memory, HostKind kind, unsigned flags);
CUresult free_host_memory(uint64_t address, HostKind kind);  // INVALID_VALUE where no such range begins
CUresult register_host_memory(uint64_t address, size_t size, unsigned flags);
CUresult unregister_host_memory(uint64_t address);
bool find_host_memory(uint64_t address, HostRange& found);   // the range that holds `address`
bool seen_by_device(uint64_t address);                       // device memory, or host memory that the device process sees
void forget_host_memory(uint64_t context);                   // the context is gone

}  // namespace vgpu::sim
