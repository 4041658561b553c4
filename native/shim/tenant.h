/* What this process is to the arbiter: its slot, its page, and what it owns. One per process; a forked child has none until its own cuInit.
 *
 * The pointer to it lives in a page with MADV_WIPEONFORK: in a child it reads as null, so knowing oneself costs a load and no getpid.
 */
#pragma once
#include "channel.h"
#include "ledger.h"
#include "ownership.h"
#include "shim.h"
#include "vmm.h"

namespace vgpu {

constexpr int MAX_ORDINALS = 64;
constexpr int UNKNOWN_PART = -1;

/* Zero-initialised memory of its own mapping: no constructor runs, nothing is freed at exit. */
struct Tenant {
    Channel channel;
    vgpu_control *page;
    uint32_t slot;
    pid_t pid;
    std::atomic<uint32_t> admitted; /* bit per part: this process may make contexts there */
    std::atomic<uint32_t> measured; /* bit per part: its first context's own memory has been measured */
    Ownership pointers;
    Vmm vmm;

    /* The devices as CUDA numbers them here, known after the first successful cuInit. */
    std::atomic<int> ordinals;             /* how many; 0 = not known yet */
    std::atomic<int> part_of[MAX_ORDINALS]; /* index into the lease's devices, or UNKNOWN_PART */
    std::atomic<CUcontext> primary[MAX_ORDINALS];
};

struct Anchor {
    std::atomic<Tenant *> tenant;
    pthread_mutex_t mutex; /* wiped in a child too, so a fork during an attach leaves no lock behind */
    int attempted;
    int initialising; /* threads inside the driver's first cuInit; under mutex */
};

extern std::atomic<Anchor *> anchor __attribute__((visibility("hidden")));

/* This process's tenant, or null: unmanaged, not attached yet, or a child that has not called cuInit. */
inline Tenant *tenant() { return anchor.load(std::memory_order_acquire)->tenant.load(std::memory_order_acquire); }

/* The same, and null inside a hook too: what the driver calls in there is its own business. */
inline Tenant *managed() { return depth == 0 ? tenant() : nullptr; }

/* The anchor of this process, made at the first call. Null when the kernel cannot wipe pages on fork (before 4.14). */
Anchor *own_anchor();

/* Attaches if VGPU_SHIM_SOCKET and VGPU_TOKEN are there and it was not tried before in this process; under `anchor.mutex`. A failure leaves
 * the process unmanaged: everything then goes to the driver as if we were not there. */
Tenant *attach(Anchor *anchor);

/* The lease's device of a CUDA ordinal; UNKNOWN_PART when the shim does not manage it. */
int part_of(const Tenant &tenant, CUdevice device);

/* The lease's device of the current context; UNKNOWN_PART without one. */
int current_part(const Tenant &tenant);

/* The lease's device with this UUID, or UNKNOWN_PART. `uuid` is 16 bytes. */
int part_of_uuid(const Tenant &tenant, const void *uuid);

/* Reads "GPU-" or "MIG-" and 32 hexadecimal digits with dashes. */
bool parse_uuid(const char *text, unsigned char uuid[16]);

/* Writes "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" and a zero: 41 bytes. */
void format_uuid(const uint8_t uuid[16], char *text);

}  // namespace vgpu
