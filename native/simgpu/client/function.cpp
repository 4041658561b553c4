// What can be asked about a kernel. Its resources are invented, and the occupancy follows from them: nothing here depends on the code.
#include <algorithm>

#include "driver.h"
#include "module.h"

namespace vgpu::sim {
namespace {

constexpr int kRegisters = 32;

CUresult find(const void* handle, std::shared_ptr<Function>& function) {
  if (const CUresult wrong = initialized()) return wrong;
  function = find_function(handle);
  return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult attribute(const void* handle, CUfunction_attribute which, int* value) {
  std::shared_ptr<Function> function;
  if (const CUresult wrong = find(handle, function)) return wrong;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = int(kMaxThreadsPerBlock); break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = kRegisters; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = kComputeMajor * 10 + kComputeMinor; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = kSharedPerBlock; break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = -1; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: *value = 0; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// Hints about memory that the simulated kernels do not use: checked, and of no effect.
CUresult set_attribute(const void* handle, CUfunction_attribute which, int value) {
  std::shared_ptr<Function> function;
  if (const CUresult wrong = find(handle, function)) return wrong;
  if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    return value >= 0 && value <= kSharedPerBlockOptIn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
    return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult set_cache_config(const void* handle, CUfunc_cache preference) {
  std::shared_ptr<Function> function;
  if (const CUresult wrong = find(handle, function)) return wrong;
  return preference <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult name_of(const void* handle, const char** name) {
  std::shared_ptr<Function> function;
  if (const CUresult wrong = find(handle, function)) return wrong;
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  *name = function->entry.name.c_str();
  return CUDA_SUCCESS;
}

CUresult parameter(const void* handle, size_t index, size_t* offset, size_t* size) {
  std::shared_ptr<Function> function;
  if (const CUresult wrong = find(handle, function)) return wrong;
  if (!offset || index >= function->entry.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->entry.parameters[index].offset;
  if (size) *size = function->entry.parameters[index].size;
  return CUDA_SUCCESS;
}

int blocks_per_multiprocessor(int block, size_t shared) {
  const int threads = (block + kWarp - 1) / kWarp * kWarp;
  int blocks = std::min(kBlocksPerMultiprocessor, kThreadsPerMultiprocessor / threads);
  if (shared) blocks = int(std::min<size_t>(size_t(blocks), size_t(kSharedPerMultiprocessor) / (shared + kSharedReserved)));
  return blocks;
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  std::shared_ptr<Function> found;
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (const CUresult wrong = find(kernel, found)) return wrong;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  *function = handle<CUfunction>(number(kernel));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel kernel) { return name_of(kernel, name); }
CUresult cuFuncGetName(const char** name, CUfunction function) { return name_of(function, name); }

CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  std::shared_ptr<Function> found;
  if (const CUresult wrong = find(kernel, found)) return wrong;
  if (!library) return CUDA_ERROR_INVALID_VALUE;
  *library = handle<CUlibrary>(number(found->module));
  return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  std::shared_ptr<Function> found;
  if (const CUresult wrong = find(function, found)) return wrong;
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  *module = handle<CUmodule>(number(found->module));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  return parameter(kernel, index, offset, size);
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  return parameter(function, index, offset, size);
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel kernel, CUdevice device) {
  uint32_t index;
  if (const CUresult wrong = device_index(device, index)) return wrong;
  return attribute(kernel, which, value);
}

CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel, CUdevice device) {
  uint32_t index;
  if (const CUresult wrong = device_index(device, index)) return wrong;
  return set_attribute(kernel, which, value);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache preference, CUdevice device) {
  uint32_t index;
  if (const CUresult wrong = device_index(device, index)) return wrong;
  return set_cache_config(kernel, preference);
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction function) { return attribute(function, which, value); }

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) { return set_attribute(function, which, value); }

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache preference) { return set_cache_config(function, preference); }

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block, size_t shared) {
  std::shared_ptr<Function> found;
  if (const CUresult wrong = find(function, found)) return wrong;
  if (!blocks || block <= 0 || block > int(kMaxThreadsPerBlock)) return CUDA_ERROR_INVALID_VALUE;
  *blocks = blocks_per_multiprocessor(block, shared);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int block, size_t shared,
                                                              unsigned int flags) {
  return flags > 1 ? CUDA_ERROR_INVALID_VALUE : cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block, shared);
}

CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of_block, size_t shared,
                                          int limit) {
  std::shared_ptr<Function> found;
  if (const CUresult wrong = find(function, found)) return wrong;
  if (!grid || !block || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  const int most = limit && limit < int(kMaxThreadsPerBlock) ? limit : int(kMaxThreadsPerBlock);
  int best = 0;
  for (int candidate = (most + kWarp - 1) / kWarp * kWarp; candidate > 0; candidate -= kWarp) {
    const int threads = std::min(candidate, most);
    const int blocks = blocks_per_multiprocessor(threads, shared_of_block ? shared_of_block(threads) : shared);
    if (blocks * threads <= best) continue;
    best = blocks * threads;
    *block = threads;
    *grid = blocks * kMultiprocessors;
  }
  return best ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of_block,
                                                   size_t shared, int limit, unsigned int flags) {
  return flags > 1 ? CUDA_ERROR_INVALID_VALUE : cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of_block, shared, limit);
}
