/* How every hook that makes the driver allocate charges it: reserve, allocate, commit; and the way back at each failure. */
#pragma once
#include "tenant.h"

namespace vgpu {

/* Reserves, if need be by the arbiter; false = deny. With `driver_short` straight from the arbiter: the books had room, the device had
 * none, and it may reclaim some from idle tenants. */
bool obtain(Tenant *tenant, unsigned part, uint64_t bytes, bool driver_short);

/* Runs `allocate` under a reservation of `bytes` on `part`, and `keep` after it succeeded. Unmanaged (no tenant, UNKNOWN_PART) and empty
 * requests go to the driver as they are. The result is the driver's, or CUDA_ERROR_OUT_OF_MEMORY. */
template <class Allocate, class Keep>
CUresult charge(Tenant *tenant, int part, uint64_t bytes, Allocate allocate, Keep keep) {
    Guard guard;
    if (!tenant || part == UNKNOWN_PART || bytes == 0) return allocate();
    unsigned device = unsigned(part);
    if (!obtain(tenant, device, bytes, false)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = allocate();
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        give_back(*tenant->page, tenant->slot, device, bytes);
        if (!obtain(tenant, device, bytes, true)) return CUDA_ERROR_OUT_OF_MEMORY;
        result = allocate();
    }
    if (result == CUDA_SUCCESS)
        keep();
    else
        give_back(*tenant->page, tenant->slot, device, bytes);
    return result;
}

/* Gives back what `context` owned, entries up to `mark` only; `mark` is taken before the driver destroys the context. */
void forget_context(Tenant *tenant, CUcontext context, uint64_t mark);

}  // namespace vgpu
