#include "host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <iterator>
#include <map>
#include <mutex>

namespace vgpu::sim {
namespace {

std::mutex mutex;
std::map<uint64_t, HostRange>& ranges() {  // never destroyed: threads may outlive main
  static auto* all = new std::map<uint64_t, HostRange>;
  return *all;
}

uint64_t pages(uint64_t size) {
  const uint64_t page = uint64_t(sysconf(_SC_PAGESIZE));
  return (size + page - 1) / page * page;
}

// Under the mutex.
std::map<uint64_t, HostRange>::iterator holder(uint64_t address) {
  auto next = ranges().upper_bound(address);
  if (next == ranges().begin()) return ranges().end();
  auto range = std::prev(next);
  return address - range->first < range->second.size ? range : ranges().end();
}

}  // namespace

CUresult allocate_host_memory(void** address, size_t size, Memory memory, HostKind kind, unsigned flags) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (!address || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > kDeviceAddresses) return CUDA_ERROR_OUT_OF_MEMORY;
  void* room = mmap(nullptr, pages(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  int descriptor = -1;
  Nothing nothing;
  const HostAllocRequest request{number(room), size, memory, 0};
  CUresult outcome = result(call(CallId::kHostAlloc, context, request, nothing, Bytes{}, nullptr, -1, &descriptor));
  if (outcome == CUDA_SUCCESS) {
    void* mapped = mmap(room, pages(size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0);
    if (mapped == MAP_FAILED) {
      call(CallId::kHostFree, context, HostFreeRequest{number(room)});
      outcome = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  if (descriptor >= 0) close(descriptor);
  if (outcome != CUDA_SUCCESS) {
    munmap(room, pages(size));
    return outcome;
  }
  std::lock_guard<std::mutex> lock(mutex);
  ranges()[number(room)] = {number(room), size, context, kind, flags};
  *address = room;
  return CUDA_SUCCESS;
}

CUresult free_host_memory(uint64_t address, HostKind kind) {
  if (const CUresult wrong = initialized()) return wrong;
  HostRange range;
  {
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = ranges().find(address);
    if (found == ranges().end() || found->second.kind != kind) return CUDA_ERROR_INVALID_VALUE;
    range = found->second;
  }
  if (const CUresult wrong = ask_anywhere(CallId::kHostFree, HostFreeRequest{address})) return wrong;
  std::lock_guard<std::mutex> lock(mutex);
  if (ranges().erase(address)) munmap(reinterpret_cast<void*>(address), pages(range.size));
  return CUDA_SUCCESS;
}

CUresult register_host_memory(uint64_t address, size_t size, unsigned flags) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (!address || size == 0 || is_device_address(address)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> lock(mutex);
  const auto next = ranges().lower_bound(address);
  if (holder(address) != ranges().end() || (next != ranges().end() && next->first - address < size))
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  ranges()[address] = {address, size, context, HostKind::kRegistered, flags};
  return CUDA_SUCCESS;
}

CUresult unregister_host_memory(uint64_t address) {
  if (const CUresult wrong = initialized()) return wrong;
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = ranges().find(address);
  if (found == ranges().end() || found->second.kind != HostKind::kRegistered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  ranges().erase(found);
  return CUDA_SUCCESS;
}

bool find_host_memory(uint64_t address, HostRange& found) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto range = holder(address);
  if (range == ranges().end()) return false;
  found = range->second;
  return true;
}

bool seen_by_device(uint64_t address) {
  HostRange range;
  return is_device_address(address) || (find_host_memory(address, range) && range.kind != HostKind::kRegistered);
}

void forget_host_memory(uint64_t context) {
  std::lock_guard<std::mutex> lock(mutex);
  for (auto range = ranges().begin(); range != ranges().end();) {
    if (range->second.context != context) {
      ++range;
      continue;
    }
    if (range->second.kind != HostKind::kRegistered) munmap(reinterpret_cast<void*>(range->first), pages(range->second.size));
    range = ranges().erase(range);
  }
}

}  // namespace vgpu::sim
