/* What CUDA is told about memory: the tenant's snapshot wherever its limit is below what the device has. With the whole device as the limit
 * the driver's own figures stand, so that a notebook alone on a machine sees what it sees without us. */
#include <limits.h>

#include "tenant.h"

namespace vgpu {
namespace {

template <class Word>
Word narrow(uint64_t bytes) {
    return sizeof(Word) == 4 && bytes > UINT_MAX ? Word(UINT_MAX) : Word(bytes);
}

template <class Word>
CUresult total(Word *bytes, CUdevice device, CUresult (*real)(Word *, CUdevice)) {
    Tenant *t = managed();
    Guard guard;
    CUresult result = real(bytes, device);
    int part = t && result == CUDA_SUCCESS ? part_of(*t, device) : UNKNOWN_PART;
    if (part == UNKNOWN_PART) return result;
    Snapshot shown = snapshot(*t->page, unsigned(part));
    if (shown.total < *bytes) *bytes = narrow<Word>(shown.total);
    return result;
}

template <class Word>
CUresult info(Word *free, Word *total, CUresult (*real)(Word *, Word *)) {
    Tenant *t = free && total ? managed() : nullptr;
    Guard guard;
    CUresult result = real(free, total);
    int part = t && result == CUDA_SUCCESS ? current_part(*t) : UNKNOWN_PART;
    if (part == UNKNOWN_PART) return result;
    Snapshot shown = snapshot(*t->page, unsigned(part));
    if (shown.total >= *total) return result;
    *total = narrow<Word>(shown.total);
    *free = narrow<Word>(shown.total - shown.used);
    return result;
}

}  // namespace
}  // namespace vgpu

using namespace vgpu;

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device) { return total(bytes, device, VGPU_REAL(cuDeviceTotalMem)); }

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) { return total(bytes, device, VGPU_REAL(cuDeviceTotalMem_v2)); }

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) { return info(free, total, VGPU_REAL(cuMemGetInfo)); }

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) { return info(free, total, VGPU_REAL(cuMemGetInfo_v2)); }
