/* What every part of the shim sees: the exported symbols, the slots behind them, and the guard against re-entry. */
#pragma once
#include <atomic>

#include "vgpu/cuda_abi.h"
#include "vgpu/nvml_abi.h"

#define VGPU_EXPORT __attribute__((visibility("default")))

extern "C" {
#define VGPU_HOOK(library, name, result, ...) VGPU_EXPORT result name __VA_ARGS__;
#define VGPU_FORWARD(library, name)
#include "vgpu/hooks.def"

/* Forwarded symbols that the shim itself calls: through its own trampolines, so they answer "not found" where the driver lacks them. */
VGPU_EXPORT CUresult cuDeviceGetCount(int *count);
VGPU_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
VGPU_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
VGPU_EXPORT CUresult cuCtxGetCurrent(CUcontext *context);
VGPU_EXPORT CUresult cuCtxGetDevice(CUdevice *device);
VGPU_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active);
VGPU_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length);
}

namespace vgpu {

enum Library : int { CUDA, NVML };

enum Symbol : unsigned {
#define VGPU_HOOK(library, name, ...) SYMBOL_##name,
#define VGPU_FORWARD(library, name) SYMBOL_##name,
#include "vgpu/hooks.def"
    SYMBOL_COUNT
};

/* The real function of each symbol, or a lazy stub until the first call (trampolines.cpp). */
extern "C" __attribute__((visibility("hidden"))) std::atomic<void *> vgpu_slots[];

/* The real function behind a hook, typed as the hook. */
#define VGPU_REAL(name) (reinterpret_cast<decltype(&::name)>(::vgpu::vgpu_slots[::vgpu::SYMBOL_##name].load(std::memory_order_relaxed)))

/* How deep this thread is inside hooks. A driver may call exported symbols of its own (cuInit reaches some through cuGetExportTable):
 * those find a depth above zero and go straight through. __thread, not thread_local: no dynamic initialisation, so no wrapper around
 * each use. */
extern __thread int depth __attribute__((tls_model("initial-exec"), visibility("hidden")));

class Guard {
  public:
    Guard() { ++depth; }
    ~Guard() { --depth; }
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;
};

}  // namespace vgpu
