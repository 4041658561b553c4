#include <atomic>
#include <mutex>

#include "contexts.h"
#include "driver.h"
#include "host_memory.h"
#include "module.h"
#include "streams.h"

namespace vgpu::sim {
namespace {

// The primary contexts by device: what this library keeps of one must go when it ends.
std::atomic<uint64_t> primary[kMaxDevices];

// What this library keeps of a context that is gone.
void forget(uint64_t context) {
  forget_host_memory(context);
  forget_modules(context);
}

CUresult state_of(uint64_t context, ContextStateReply& state) {
  return ask_anywhere(CallId::kContextState, ContextStateRequest{context}, state);
}

CUresult create(CUcontext* context, unsigned flags, CUdevice device) {
  uint32_t index;
  if (const CUresult wrong = device_index(device, index)) return wrong;
  if (!context || flags & ~unsigned(CU_CTX_FLAGS_MASK)) return CUDA_ERROR_INVALID_VALUE;
  ContextCreateReply created;
  if (const CUresult wrong = ask_anywhere(CallId::kContextCreate, ContextCreateRequest{index, flags}, created)) return wrong;
  push_current(created.context);
  *context = handle<CUcontext>(created.context);
  return CUDA_SUCCESS;
}

CUresult context_or_current(CUcontext given, uint64_t& context) {
  if (!given) return current(context);
  context = number(given);
  return initialized();
}

struct Limit {
  CUlimit which;
  size_t value;
};

// Kept for the whole process: a simulated kernel has no stack and no heap.
Limit limits[] = {{CU_LIMIT_STACK_SIZE, 1024}, {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20}, {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20}};
std::mutex limits_mutex;

Limit* find(CUlimit which) {
  for (Limit& limit : limits)
    if (limit.which == which) return &limit;
  return nullptr;
}

}  // namespace

CUresult current_device(uint32_t& index) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  ContextStateReply state;
  if (const CUresult wrong = state_of(context, state)) return wrong;
  index = state.device;
  return CUDA_SUCCESS;
}

}  // namespace vgpu::sim

using namespace vgpu::sim;

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  uint32_t index;
  if (const CUresult wrong = device_index(device, index)) return wrong;
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  PrimaryRetainReply retained;
  if (const CUresult wrong = ask_anywhere(CallId::kPrimaryRetain, PrimaryRetainRequest{index}, retained)) return wrong;
  primary[index] = retained.context;
  *context = handle<CUcontext>(retained.context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  uint32_t index;
  if (const CUresult wrong = device_index(device, index)) return wrong;
  const CUresult outcome = ask_anywhere(CallId::kPrimaryRelease, PrimaryReleaseRequest{index});
  PrimaryStateReply state{};
  if (outcome == CUDA_SUCCESS && ask_anywhere(CallId::kPrimaryState, PrimaryStateRequest{index}, state) == CUDA_SUCCESS && !state.active)
    forget(primary[index]);
  return outcome;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return cuDevicePrimaryCtxRelease(device); }

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  uint32_t index;
  if (const CUresult wrong = device_index(device, index)) return wrong;
  const CUresult outcome = ask_anywhere(CallId::kPrimaryReset, PrimaryResetRequest{index});
  if (outcome == CUDA_SUCCESS) forget(primary[index]);
  return outcome;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { return cuDevicePrimaryCtxReset(device); }

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  uint32_t index;
  if (const CUresult wrong = device_index(device, index)) return wrong;
  if (flags & ~unsigned(CU_CTX_FLAGS_MASK)) return CUDA_ERROR_INVALID_VALUE;
  return ask_anywhere(CallId::kPrimarySetFlags, PrimarySetFlagsRequest{index, flags});
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) { return cuDevicePrimaryCtxSetFlags(device, flags); }

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  uint32_t index;
  if (const CUresult wrong = device_index(device, index)) return wrong;
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  PrimaryStateReply state;
  if (const CUresult wrong = ask_anywhere(CallId::kPrimaryState, PrimaryStateRequest{index}, state)) return wrong;
  *flags = state.flags;
  *active = int(state.active);
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) { return create(context, flags, device); }

CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int count, unsigned int flags, CUdevice device) {
  // A context with a part of the multiprocessors: there is nothing to divide.
  return count ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned int flags, CUdevice device) {
  return parameters ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  if (const CUresult wrong = ask_anywhere(CallId::kContextDestroy, ContextDestroyRequest{number(context)})) return wrong;
  if (current_or_none() == number(context)) pop_current();
  forget(number(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ContextStateReply state;
  if (const CUresult wrong = state_of(number(context), state)) return wrong;
  push_current(number(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (const CUresult wrong = initialized()) return wrong;
  if (!has_current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = handle<CUcontext>(current_or_none());
  pop_current();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (const CUresult wrong = initialized()) return wrong;
  ContextStateReply state;
  if (context)
    if (const CUresult wrong = state_of(number(context), state)) return wrong;
  set_current(number(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  if (const CUresult wrong = initialized()) return wrong;
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = handle<CUcontext>(current_or_none());
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) { return cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext given) {
  uint64_t context;
  if (const CUresult wrong = context_or_current(given, context)) return wrong;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  ContextStateReply state;
  if (const CUresult wrong = state_of(context, state)) return wrong;
  *device = device_ordinal(state.device);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  ContextStateReply state;
  if (const CUresult wrong = state_of(context, state)) return wrong;
  *flags = state.flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext given, unsigned long long* id) {
  uint64_t context;
  if (const CUresult wrong = context_or_current(given, context)) return wrong;
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  *id = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) { return ask(CallId::kContextSynchronize, ContextSynchronizeRequest{}); }

CUresult cuCtxSynchronize_v2(CUcontext given) {
  uint64_t context;
  if (const CUresult wrong = context_or_current(given, context)) return wrong;
  return result(call(CallId::kContextSynchronize, context, ContextSynchronizeRequest{}));
}

CUresult cuCtxGetLimit(size_t* value, CUlimit which) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> lock(limits_mutex);
  const Limit* limit = find(which);
  if (!limit) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = limit->value;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit which, size_t value) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  std::lock_guard<std::mutex> lock(limits_mutex);
  Limit* limit = find(which);
  if (!limit) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  limit->value = value;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext given, unsigned int* version) {
  uint64_t context;
  if (const CUresult wrong = context_or_current(given, context)) return wrong;
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;
  return CUDA_SUCCESS;
}

// Priorities are kept and reported; the simulated timeline does not prefer any.
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (least) *least = 0;
  if (greatest) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}
