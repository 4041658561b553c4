/* NVML's view: handles and the lease's devices. */
#pragma once
#include "tenant.h"

namespace vgpu {

/* The lease's device behind a handle, or UNKNOWN_PART (unmanaged, a MIG child of another lease, not a handle at all). */
int part_of_handle(const Tenant &tenant, nvmlDevice_t device);

/* The same for what the driver has just answered about a device: a failed answer is passed on as it is. */
inline int part_answered(const Tenant *tenant, nvmlReturn_t result, nvmlDevice_t device) {
    return tenant && result == NVML_SUCCESS ? part_of_handle(*tenant, device) : UNKNOWN_PART;
}

}  // namespace vgpu
