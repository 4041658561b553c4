// Stream-ordered allocation. Each device has its default pool, which keeps nothing back: what is freed is the device's again.
#include <string.h>

#include <atomic>

#include "driver.h"
#include "streams.h"

namespace vgpu::sim {
namespace {

// A CUmemoryPool is the address of one of these.
struct Pool {
  std::atomic<uint64_t> release_threshold{0};
  std::atomic<int> reuse[3] = {{1}, {1}, {1}};
};
Pool pools[kMaxDevices];

CUmemoryPool pool_of(uint32_t index) { return handle<CUmemoryPool>(number(&pools[index])); }

CUresult find(CUmemoryPool pool, uint32_t& index) {
  if (const CUresult wrong = initialized()) return wrong;
  for (index = 0; index < devices().device_count; ++index)
    if (pool_of(index) == pool) return CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult device_pool(CUmemoryPool* pool, CUdevice device) {
  uint32_t index;
  if (const CUresult wrong = device_index(device, index)) return wrong;
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  *pool = pool_of(index);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t size, CUstream stream) {
  StreamTarget target;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  if (!address || size == 0) return CUDA_ERROR_INVALID_VALUE;
  AllocateAsyncReply allocated;
  const AllocateAsyncRequest request{size, target.stream};
  if (const CUresult wrong = result(call(CallId::kAllocateAsync, target.context, request, allocated))) return wrong;
  *address = allocated.address;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t size, CUmemoryPool pool, CUstream stream) {
  uint32_t index;
  if (const CUresult wrong = find(pool, index)) return wrong;
  StreamTarget target;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  StreamStateReply state;
  const StreamStateRequest request{target.stream};
  if (const CUresult wrong = result(call(CallId::kStreamState, target.context, request, state))) return wrong;
  if (state.device != index) return CUDA_ERROR_NOT_SUPPORTED;  // another device's memory: no two are peers
  return cuMemAllocAsync(address, size, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  StreamTarget target;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  return result(call(CallId::kFreeAsync, target.context, FreeAsyncRequest{address, target.stream}));
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) { return device_pool(pool, device); }
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) { return device_pool(pool, device); }

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  uint32_t index;
  if (const CUresult wrong = device_index(device, index)) return wrong;
  return pool == pool_of(index) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  uint32_t index;
  return find(pool, index);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  uint32_t index;
  if (const CUresult wrong = find(pool, index)) return wrong;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES && attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
    const int reuse = pools[index].reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
    memcpy(value, &reuse, sizeof reuse);
    return CUDA_SUCCESS;
  }
  PoolStateReply state;
  if (const CUresult wrong = ask_anywhere(CallId::kPoolState, PoolStateRequest{index}, state)) return wrong;
  uint64_t number;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: number = pools[index].release_threshold; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: number = state.used; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: number = state.high; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  memcpy(value, &number, sizeof number);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  uint32_t index;
  if (const CUresult wrong = find(pool, index)) return wrong;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES && attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
    int reuse;
    memcpy(&reuse, value, sizeof reuse);
    pools[index].reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = reuse;
    return CUDA_SUCCESS;
  }
  if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return CUDA_ERROR_NOT_SUPPORTED;
  uint64_t threshold;
  memcpy(&threshold, value, sizeof threshold);
  pools[index].release_threshold = threshold;
  return CUDA_SUCCESS;
}
