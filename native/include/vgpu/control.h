/* The control page: one sealed memfd per tenant, shared by the arbiter and all processes of that tenant, never between tenants.
 *
 * Every word has one writer, so nothing here is ever locked and a kill -9 between two instructions leaves nothing wrong:
 *   "arbiter"  written by the arbiter process alone (its Python loop, or its native thread when a process has died);
 *   "process"  written by the process that owns the slot alone.
 * Readers take single aligned words with relaxed or acquire loads. No total is stored: sums are taken over the slots.
 *
 * Bytes for memory, parts per million of one device for compute. Python reads this same file with cffi
 * (jupyter_vgpu/native/control.py), so it holds structs and integer macros and nothing else.
 */
#pragma once
#include <stdint.h>

#define VGPU_CONTROL_MAGIC 0x55504756
#define VGPU_CONTROL_VERSION 1
#define VGPU_MAX_DEVICES 16
#define VGPU_MAX_PROCESSES 256

/* One device of the lease, in the order in which the tenant sees them. */
struct vgpu_control_device {
    uint8_t uuid[16];          /* arbiter: the driver's UUID bytes */
    uint64_t memory_limit;     /* arbiter: bytes; what CUDA calls "total" */
    uint64_t memory_guarantee; /* arbiter: bytes */
    uint32_t compute_share;    /* arbiter: parts per million */
    uint32_t compute_cap;      /* arbiter: parts per million, 0 = no cap */
    uint8_t reserved[24];
};

/* What one process holds on one device: a cache line, so that two processes never share one. */
struct vgpu_control_usage {
    uint64_t used;     /* process: bytes held by its allocations, reservations in flight included */
    uint64_t granted;  /* arbiter: bytes granted by a RESERVE answer and not yet confirmed by COMMIT */
    uint64_t residual; /* arbiter: bytes the driver holds for the process beyond `used` (context, modules), from NVML */
    uint64_t launches; /* process: work submitted so far (kernels, copies); counts activity, is not a measure of time */
    uint8_t reserved[32];
};

struct vgpu_control_process {
    uint32_t pid; /* arbiter: 0 = free slot; the pid in the arbiter's own PID namespace */
    uint32_t generation; /* arbiter: raised each time the slot is handed out */
    uint8_t reserved[56];
    struct vgpu_control_usage device[VGPU_MAX_DEVICES];
};

struct vgpu_control {
    uint32_t magic;              /* arbiter */
    uint32_t version;            /* arbiter */
    uint64_t size;               /* arbiter: sizeof(struct vgpu_control) */
    uint32_t device_count;       /* arbiter */
    uint32_t process_high_water; /* arbiter: slots [0, process_high_water) may be in use */
    uint32_t revision;           /* arbiter: raised after each change of a device part */
    uint32_t cancel;             /* arbiter: raised by an interrupt; waits of the tenant end */
    uint8_t reserved[4064];      /* to the end of the first memory page */
    struct vgpu_control_device device[VGPU_MAX_DEVICES];
    struct vgpu_control_process process[VGPU_MAX_PROCESSES];
};
