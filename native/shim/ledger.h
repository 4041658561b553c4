/* The tenant's books on the control page: pure functions over the page, no system call, no lock.
 *
 * Memory that a process holds is in its own slot. Reserving adds to it first and sums all slots afterwards, so two processes that
 * reserve at once may both back out (and ask the arbiter, which serialises) but can never both fit into the same bytes.
 */
#pragma once
#include <stdint.h>

#include "vgpu/control.h"

namespace vgpu {

/* What a tenant sees of one device, in bytes: 0 <= used <= total. */
struct Snapshot {
    uint64_t total;
    uint64_t used;
};

/* Bytes that one process accounts for on a device: held, granted and not yet committed, and the driver's own. Saturates. */
uint64_t process_bytes(const vgpu_control_usage &usage);

/* Sum over all processes of the tenant. Saturates instead of wrapping. */
uint64_t tenant_bytes(const vgpu_control &page, unsigned part);

/* The one source of every memory figure that the tenant is shown. */
Snapshot snapshot(const vgpu_control &page, unsigned part);

/* Adds `bytes` to the slot if the tenant then is within its limit; else leaves the slot as it was and returns false. */
bool reserve(vgpu_control &page, unsigned slot, unsigned part, uint64_t bytes);

/* Adds without a check: bytes that the arbiter has granted, or the little that a driver rounded up. */
void add(vgpu_control &page, unsigned slot, unsigned part, uint64_t bytes);

/* Gives back. Never below zero, whatever is given back twice. */
void give_back(vgpu_control &page, unsigned slot, unsigned part, uint64_t bytes);

}  // namespace vgpu
