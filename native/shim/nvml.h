/* NVML's view: handles and the lease's devices. */
#pragma once
#include "tenant.h"

namespace vgpu {

/* The lease's device behind a handle, or UNKNOWN_PART (unmanaged, a MIG child of another lease, not a handle at all). */
int part_of_handle(const Tenant &tenant, nvmlDevice_t device);

}  // namespace vgpu
