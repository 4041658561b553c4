#include <string.h>

#include "contexts.h"
#include "driver.h"
#include "host_memory.h"

namespace vgpu::sim {
namespace {

constexpr size_t kPitchAlignment = 512;
// Flags that the driver API has as macros. All host memory here is portable and mapped.
constexpr unsigned kRegisterPortable = 1;                                      // CU_MEMHOSTREGISTER_PORTABLE
constexpr unsigned kHostPortable = 1, kHostMapped = 2, kHostWriteCombined = 4;  // CU_MEMHOSTALLOC_*

// False where the attribute means nothing for this address.
template <class T>
bool put(void* value, T what) {
  memcpy(value, &what, sizeof what);
  return true;
}

struct Pointer {
  bool known = false;       // to the device process
  AddressStateReply state{};
  HostRange host{};
  bool on_host = false;
};

Pointer look_up(CUdeviceptr address) {
  Pointer pointer;
  pointer.on_host = find_host_memory(address, pointer.host);
  pointer.known = call(CallId::kAddressState, 0, AddressStateRequest{address}, pointer.state) == 0;
  return pointer;
}

bool attribute(const Pointer& pointer, CUdeviceptr address, CUpointer_attribute which, void* value) {
  if (!pointer.known && !pointer.on_host) return false;
  const bool managed = pointer.known && pointer.state.kind == Memory::kManaged;
  const bool device = pointer.known && pointer.state.kind != Memory::kHost && !managed;
  const bool pool = pointer.known && pointer.state.kind == Memory::kPool;
  const bool vmm = pointer.known && pointer.state.kind == Memory::kMapped;
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return !vmm && !pool && put(value, pointer.known ? pointer.state.context : pointer.host.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return put(value, device || managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return pointer.known && put(value, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: return !device && put(value, address);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put(value, 0u);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return pointer.known && put(value, static_cast<unsigned long long>(pointer.state.id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put(value, unsigned(managed));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return pointer.known && put(value, device_ordinal(pointer.state.device));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return put(value, 0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put(value, pointer.known ? pointer.state.base : pointer.host.address);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put(value, size_t(pointer.known ? pointer.state.size : pointer.host.size));
    case CU_POINTER_ATTRIBUTE_MAPPED: return put(value, unsigned(pointer.known));
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(value, static_cast<unsigned long long>(vmm ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return put(value, 0u);
    default: return false;
  }
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  uint32_t index;
  if (const CUresult wrong = current_device(index)) return wrong;
  if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
  DeviceStateReply state;
  if (const CUresult wrong = ask(CallId::kDeviceState, DeviceStateRequest{index}, state)) return wrong;
  *total = describe(index).total;
  *free = *total - state.used;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t size) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (!address || size == 0) return CUDA_ERROR_INVALID_VALUE;
  AllocateReply allocated;
  if (const CUresult wrong = ask(CallId::kAllocate, AllocateRequest{size}, allocated)) return wrong;
  *address = allocated.address;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned int element) {
  if (const CUresult wrong = initialized()) return wrong;
  if (!address || !pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
  if (width > kDeviceAddresses || height > kDeviceAddresses / (width + kPitchAlignment)) return CUDA_ERROR_OUT_OF_MEMORY;
  const size_t row = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  if (const CUresult wrong = cuMemAlloc_v2(address, row * height)) return wrong;
  *pitch = row;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t size, unsigned int flags) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  void* allocated;
  if (const CUresult wrong = allocate_host_memory(&allocated, size, Memory::kManaged, HostKind::kManaged, flags)) return wrong;
  *address = number(allocated);
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  if (const CUresult wrong = initialized()) return wrong;
  if (address == 0) return CUDA_SUCCESS;
  if (!is_device_address(address)) return free_host_memory(address, HostKind::kManaged);
  return ask_anywhere(CallId::kFree, FreeRequest{address});
}

CUresult cuMemAllocHost_v2(void** address, size_t size) { return cuMemHostAlloc(address, size, 0); }

CUresult cuMemHostAlloc(void** address, size_t size, unsigned int flags) {
  if (flags & ~(kHostPortable | kHostMapped | kHostWriteCombined)) return CUDA_ERROR_INVALID_VALUE;
  return allocate_host_memory(address, size, Memory::kHost, HostKind::kPinned, flags);
}

CUresult cuMemFreeHost(void* address) { return free_host_memory(number(address), HostKind::kPinned); }

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned int flags) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (!device || flags || !seen_by_device(number(host)) || is_device_address(number(host))) return CUDA_ERROR_INVALID_VALUE;
  *device = number(host);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* host) {
  if (const CUresult wrong = initialized()) return wrong;
  HostRange range;
  if (!flags || !find_host_memory(number(host), range) || range.kind == HostKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
  *flags = range.flags;
  return CUDA_SUCCESS;
}

// Copies from and to registered memory work as from any other; a kernel cannot see it, because it lies in this process alone.
CUresult cuMemHostRegister_v2(void* address, size_t size, unsigned int flags) {
  if (flags & ~kRegisterPortable) return CUDA_ERROR_NOT_SUPPORTED;
  return register_host_memory(number(address), size, flags);
}

CUresult cuMemHostUnregister(void* address) { return unregister_host_memory(number(address)); }

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  AddressStateReply state;
  if (ask_anywhere(CallId::kAddressState, AddressStateRequest{address}, state) != CUDA_SUCCESS)
    return initialized() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_NOT_FOUND;
  if (base) *base = state.base;
  if (size) *size = state.size;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute which, CUdeviceptr address) {
  if (const CUresult wrong = initialized()) return wrong;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  return attribute(look_up(address), address, which, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// An attribute that means nothing for this address stays zero here, whose size is the caller's business only where it is known.
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* which, void** values, CUdeviceptr address) {
  if (const CUresult wrong = initialized()) return wrong;
  if (!which || !values || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const Pointer pointer = look_up(address);
  for (unsigned i = 0; i < count; ++i) {
    if (attribute(pointer, address, which[i], values[i])) continue;
    switch (which[i]) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
      case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: put(values[i], uint64_t{0}); break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: put(values[i], -2); break;  // CU_DEVICE_INVALID
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      case CU_POINTER_ATTRIBUTE_MAPPED:
      case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: put(values[i], 0u); break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}
