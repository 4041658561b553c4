/* Device memory by pointer: cuMemAlloc and its kin, and their frees. */
#include "memory.h"

#include "log.h"

namespace vgpu {
namespace {

/* The arbiter bounds the wait by its policy; this is for one that hangs. */
const int RESERVE_MS = 120000;

/* Rows are padded to the device's texture pitch alignment, 512 bytes on all current devices: an estimate, set right afterwards. */
const uint64_t PITCH_ALIGNMENT = 512;

}  // namespace

bool obtain(Tenant *t, unsigned part, uint64_t bytes, bool driver_short) {
    if (!driver_short && reserve(*t->page, t->slot, part, bytes)) return true;
    Answer answer = t->channel.ask(VGPU_OP_RESERVE, part, bytes, driver_short ? VGPU_RESERVE_DRIVER_SHORT : 0, RESERVE_MS, true);
    if (answer == Answer::OK) {
        add(*t->page, t->slot, part, bytes);
        t->channel.commit(part, bytes);
        return true;
    }
    log("%llu bytes on device %u denied: %s", static_cast<unsigned long long>(bytes), part,
        answer == Answer::CANCELLED     ? "interrupted"
        : answer == Answer::UNREACHABLE ? "the arbiter does not answer"
        : driver_short                  ? "the device is full"
                                        : "over the lease's memory limit");
    return false;
}

void forget_context(Tenant *t, CUcontext context, uint64_t mark) {
    t->pointers.take_context(
        context, mark,
        [](const Owned &owned, void *argument) {
            Tenant *owner = static_cast<Tenant *>(argument);
            give_back(*owner->page, owner->slot, owned.part, owned.bytes);
        },
        t);
}

namespace {

void keep_pointer(Tenant *t, uint64_t pointer, uint64_t bytes, int part, bool of_context) {
    CUcontext context = nullptr;
    if (of_context && cuCtxGetCurrent(&context) != CUDA_SUCCESS) context = nullptr;
    t->pointers.put({pointer, bytes, 0, context, unsigned(part)});
}

/* Memory of the current context's device. Without a context the driver has the word: it says so. */
template <class Pointer, class Allocate>
CUresult allocate(Pointer *pointer, uint64_t bytes, bool of_context, Allocate call) {
    Tenant *t = pointer ? managed() : nullptr;
    int part = t ? current_part(*t) : UNKNOWN_PART;
    return charge(t, part, bytes, call, [&] { keep_pointer(t, *pointer, bytes, part, of_context); });
}

template <class Pointer, class Pitch, class Allocate>
CUresult allocate_pitch(Pointer *pointer, Pitch *pitch, uint64_t width, uint64_t height, Allocate call) {
    uint64_t row, bytes;
    /* What overflows no driver can allocate: it answers. */
    if (__builtin_add_overflow(width, PITCH_ALIGNMENT - 1, &row) ||
        __builtin_mul_overflow(row / PITCH_ALIGNMENT * PITCH_ALIGNMENT, height, &bytes))
        bytes = 0;
    Tenant *t = pointer && pitch ? managed() : nullptr;
    int part = t ? current_part(*t) : UNKNOWN_PART;
    return charge(t, part, bytes, call, [&] {
        uint64_t actual = uint64_t(*pitch) * height;
        if (actual > bytes)
            add(*t->page, t->slot, unsigned(part), actual - bytes);
        else
            give_back(*t->page, t->slot, unsigned(part), bytes - actual);
        keep_pointer(t, *pointer, actual, part, true);
    });
}

/* A pointer that we do not know goes to the driver unchanged. */
template <class Free>
CUresult release(uint64_t pointer, Free call) {
    Tenant *t = managed();
    Guard guard;
    Owned owned;
    if (!t || !t->pointers.take(pointer, &owned)) return call();
    CUresult result = call();
    if (result == CUDA_SUCCESS)
        give_back(*t->page, t->slot, owned.part, owned.bytes);
    else
        t->pointers.put(owned);
    return result;
}

}  // namespace
}  // namespace vgpu

using namespace vgpu;

CUresult cuMemAlloc(unsigned int *pointer, unsigned int bytes) {
    return allocate(pointer, bytes, true, [&] { return VGPU_REAL(cuMemAlloc)(pointer, bytes); });
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    return allocate(pointer, bytes, true, [&] { return VGPU_REAL(cuMemAlloc_v2)(pointer, bytes); });
}

CUresult cuMemAllocPitch(unsigned int *pointer, unsigned int *pitch, unsigned int width, unsigned int height, unsigned int element) {
    return allocate_pitch(pointer, pitch, width, height,
                          [&] { return VGPU_REAL(cuMemAllocPitch)(pointer, pitch, width, height, element); });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element) {
    return allocate_pitch(pointer, pitch, width, height,
                          [&] { return VGPU_REAL(cuMemAllocPitch_v2)(pointer, pitch, width, height, element); });
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags) {
    return allocate(pointer, bytes, true, [&] { return VGPU_REAL(cuMemAllocManaged)(pointer, bytes, flags); });
}

/* Pool memory outlives the context that asked for it. */
CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    return allocate(pointer, bytes, false, [&] { return VGPU_REAL(cuMemAllocAsync)(pointer, bytes, stream); });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    return allocate(pointer, bytes, false, [&] { return VGPU_REAL(cuMemAllocAsync_ptsz)(pointer, bytes, stream); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
    return allocate(pointer, bytes, false, [&] { return VGPU_REAL(cuMemAllocFromPoolAsync)(pointer, bytes, pool, stream); });
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
    return allocate(pointer, bytes, false, [&] { return VGPU_REAL(cuMemAllocFromPoolAsync_ptsz)(pointer, bytes, pool, stream); });
}

CUresult cuMemFree(unsigned int pointer) {
    return release(pointer, [&] { return VGPU_REAL(cuMemFree)(pointer); });
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
    return release(pointer, [&] { return VGPU_REAL(cuMemFree_v2)(pointer); });
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    return release(pointer, [&] { return VGPU_REAL(cuMemFreeAsync)(pointer, stream); });
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
    return release(pointer, [&] { return VGPU_REAL(cuMemFreeAsync_ptsz)(pointer, stream); });
}
