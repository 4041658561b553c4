/* The protocol between a shim and the arbiter: SOCK_SEQPACKET on a Unix socket, one packed struct a packet.
 *
 * The shim asks, the arbiter answers with the request's `id`; an answer may come late (ADMIT waits in the queue) and out of order.
 * The peer's process is known by SO_PEERCRED (SO_PEERPIDFD where the kernel has it), never by what a packet says; the tenant by its
 * token, compared in constant time. An EOF means "reconnect", never "the tenant is gone".
 *
 *   ATTACH   token -> slot of the process, and the control page as a descriptor (SCM_RIGHTS). A shim that reconnects sets
 *            VGPU_ATTACH_AGAIN, names its slot, and sends its page's descriptor along; the arbiter takes the page back.
 *   ADMIT    before the first context on a device; answered when the lease is admitted, or with DENIED after `queue_timeout`.
 *   RESERVE  the slots' sum says that `bytes` do not fit, or the driver was short. The arbiter serialises these: OK has added `bytes`
 *            to the slot's `granted`; the shim adds them to `used` and sends COMMIT. DENIED carries the reason for the log.
 *            The arbiter adds first, sums afterwards and backs out when over the limit, as a process does for itself: one that looked
 *            first and added then would let a process reserve in between. Sums read `granted` before `used`, the order of the move.
 *   COMMIT   no answer. The arbiter takes `bytes` off `granted`.
 *   MEASURE  a context was made: the arbiter measures the process's residual now, so that the next query is right.
 *
 * Python reads this same file with cffi, so it holds structs and integer macros and nothing else. All integers little-endian,
 * all structs without padding.
 */
#pragma once
#include <stdint.h>

#define VGPU_PROTOCOL_MAGIC 0x31504756
#define VGPU_TOKEN_LENGTH 64
#define VGPU_REASON_LENGTH 192

#define VGPU_OP_ATTACH 1
#define VGPU_OP_ADMIT 2
#define VGPU_OP_RESERVE 3
#define VGPU_OP_COMMIT 4
#define VGPU_OP_MEASURE 5

#define VGPU_ATTACH_AGAIN 1
#define VGPU_RESERVE_DRIVER_SHORT 1

#define VGPU_STATUS_OK 0
#define VGPU_STATUS_DENIED 1
#define VGPU_STATUS_UNKNOWN_TENANT 2
#define VGPU_STATUS_BAD_REQUEST 3
#define VGPU_STATUS_FULL 4

struct vgpu_request {
    uint32_t magic;
    uint16_t op;
    uint16_t flags;
    uint64_t id;
    uint32_t device; /* index into the lease's devices (ADMIT, RESERVE, COMMIT, MEASURE) */
    uint32_t slot;   /* the process's slot (ATTACH with VGPU_ATTACH_AGAIN) */
    uint64_t bytes;  /* RESERVE, COMMIT */
    char token[VGPU_TOKEN_LENGTH]; /* ATTACH; zero-padded, not zero-terminated when full */
};

struct vgpu_reply {
    uint32_t magic;
    uint16_t op;
    uint16_t status;
    uint64_t id;
    uint32_t slot; /* ATTACH */
    uint32_t reserved;
    char reason[VGPU_REASON_LENGTH]; /* UTF-8, zero-terminated */
};
