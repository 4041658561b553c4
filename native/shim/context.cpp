/* Contexts: admission before the first one on a device, measuring what it costs, and giving back what dies with it. */
#include "log.h"
#include "memory.h"

namespace vgpu {
namespace {

/* The arbiter's `queue_timeout` ends the wait; this is for one that hangs. */
const int ADMIT_MS = 3600 * 1000;
const int MEASURE_MS = 2000;

/* An arbiter that is gone does not keep a notebook from its GPU: the page's limit still holds. */
bool admit(Tenant *t, unsigned part) {
    if (t->admitted.load(std::memory_order_acquire) & 1u << part) return true;
    Answer answer = t->channel.ask(VGPU_OP_ADMIT, part, 0, 0, ADMIT_MS, true);
    if (answer == Answer::DENIED || answer == Answer::CANCELLED) {
        log("no context on device %u: %s", part, answer == Answer::DENIED ? "not admitted" : "interrupted while waiting");
        return false;
    }
    t->admitted.fetch_or(1u << part, std::memory_order_release);
    return true;
}

/* So that the first query after the context knows of the driver's own memory. Bounded: late figures are better than a late context. */
void measure(Tenant *t, unsigned part) {
    if (t->measured.fetch_or(1u << part) & 1u << part) return;
    t->channel.ask(VGPU_OP_MEASURE, part, 0, 0, MEASURE_MS, true);
}

template <class Create>
CUresult create(CUdevice device, Create call) {
    Tenant *t = managed();
    Guard guard;
    int part = t ? part_of(*t, device) : UNKNOWN_PART;
    if (part == UNKNOWN_PART) return call();
    if (!admit(t, unsigned(part))) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = call();
    if (result == CUDA_SUCCESS) measure(t, unsigned(part));
    return result;
}

template <class Destroy>
CUresult destroy(CUcontext context, Destroy call) {
    Tenant *t = managed();
    Guard guard;
    if (!t || !context) return call();
    uint64_t mark = t->pointers.mark();
    CUresult result = call();
    if (result == CUDA_SUCCESS) forget_context(t, context, mark);
    return result;
}

/* A release destroys the primary context with the last reference only, a reset always. */
template <class Destroy>
CUresult destroy_primary(CUdevice device, bool always, Destroy call) {
    Tenant *t = managed();
    Guard guard;
    CUcontext context = t && device >= 0 && device < MAX_ORDINALS ? t->primary[device].load() : nullptr;
    if (!context) return call();
    uint64_t mark = t->pointers.mark();
    CUresult result = call();
    unsigned int flags;
    int active = 0;
    if (result == CUDA_SUCCESS && (always || (cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && !active)))
        forget_context(t, context, mark);
    return result;
}

}  // namespace
}  // namespace vgpu

using namespace vgpu;

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
    return create(device, [&] { return VGPU_REAL(cuCtxCreate)(context, flags, device); });
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    return create(device, [&] { return VGPU_REAL(cuCtxCreate_v2)(context, flags, device); });
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice device) {
    return create(device, [&] { return VGPU_REAL(cuCtxCreate_v3)(context, params, count, flags, device); });
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device) {
    return create(device, [&] { return VGPU_REAL(cuCtxCreate_v4)(context, params, flags, device); });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUresult result = create(device, [&] { return VGPU_REAL(cuDevicePrimaryCtxRetain)(context, device); });
    Tenant *t = managed();
    if (t && result == CUDA_SUCCESS && device >= 0 && device < MAX_ORDINALS) t->primary[device].store(*context);
    return result;
}

CUresult cuCtxDestroy(CUcontext context) {
    return destroy(context, [&] { return VGPU_REAL(cuCtxDestroy)(context); });
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    return destroy(context, [&] { return VGPU_REAL(cuCtxDestroy_v2)(context); });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return destroy_primary(device, false, [&] { return VGPU_REAL(cuDevicePrimaryCtxRelease)(device); });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return destroy_primary(device, false, [&] { return VGPU_REAL(cuDevicePrimaryCtxRelease_v2)(device); });
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    return destroy_primary(device, true, [&] { return VGPU_REAL(cuDevicePrimaryCtxReset)(device); });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return destroy_primary(device, true, [&] { return VGPU_REAL(cuDevicePrimaryCtxReset_v2)(device); });
}
