/* Who owns which device memory: a sharded map from a pointer (or a handle) to what was charged for it.
 *
 * An entry is taken out before the driver frees and put back if the driver refuses, so that a pointer which another thread is given
 * in between is never mistaken for the old one.
 */
#pragma once
#include <pthread.h>
#include <stdint.h>

#include "vgpu/cuda_abi.h"

namespace vgpu {

struct Owned {
    uint64_t key;      /* pointer or handle */
    uint64_t bytes;    /* charged */
    uint64_t sequence; /* order of insertion: tells a context's memory from that of a later one at the same address */
    CUcontext context; /* dies with it; null = belongs to no context (pools) */
    unsigned part;     /* index into the lease's devices */
};

/* Zero-initialised memory is an empty map. */
class Ownership {
  public:
    /* False when the process is out of memory: then the entry is not kept, and its bytes stay charged until the process ends. */
    bool put(const Owned &owned);
    bool take(uint64_t key, Owned *owned);
    /* A number above those of all entries put so far. */
    uint64_t mark();
    /* Takes out every entry of `context` put before `mark`, and calls `each` for it. */
    void take_context(CUcontext context, uint64_t mark, void (*each)(const Owned &, void *), void *argument);

  private:
    struct Node {
        Node *next;
        Owned owned;
    };
    static constexpr unsigned SHARDS = 16;
    static constexpr unsigned BUCKETS = 1024;
    struct Shard {
        pthread_mutex_t mutex;
        Node *bucket[BUCKETS];
    };
    static uint64_t hash(uint64_t key);
    Shard shard_[SHARDS];
    uint64_t sequence_;
};

}  // namespace vgpu
