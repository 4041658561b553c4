/* Which devices a tenant sees: those of its lease, in the lease's order. */
#pragma once
#include <stddef.h>

#include "tenant.h"

namespace vgpu {

/* The value of CUDA_VISIBLE_DEVICES for the driver: the leased devices' UUIDs, narrowed and ordered by `own`, the user's value, which
 * indexes into that view or names (prefixes of) UUIDs in it; null = all. As in CUDA, the list ends at the first invalid entry.
 * Writes at most `size` bytes. */
void visible_devices(const vgpu_control &page, const char *own, char *text, size_t size);

/* Asks the driver which of its ordinals is which device of the lease. After a successful cuInit. */
void learn_ordinals(Tenant *tenant);

}  // namespace vgpu
