#include "ownership.h"

#include <stdlib.h>

#include "lock.h"

namespace vgpu {

/* Fibonacci hashing: device pointers are multiples of 256 or of 2 MiB, so the low bits alone would fall into few buckets. */
uint64_t Ownership::hash(uint64_t key) { return (key * 0x9E3779B97F4A7C15ull) >> 40; }

bool Ownership::put(const Owned &owned) {
    Node *node = static_cast<Node *>(malloc(sizeof(Node)));
    if (!node) return false;
    node->owned = owned;
    node->owned.sequence = __atomic_fetch_add(&sequence_, 1, __ATOMIC_RELAXED);
    uint64_t h = hash(owned.key);
    Shard &shard = shard_[h % SHARDS];
    Lock lock(shard.mutex);
    Node *&head = shard.bucket[h / SHARDS % BUCKETS];
    node->next = head;
    head = node;
    return true;
}

bool Ownership::take(uint64_t key, Owned *owned) {
    uint64_t h = hash(key);
    Shard &shard = shard_[h % SHARDS];
    Node *found = nullptr;
    {
        Lock lock(shard.mutex);
        for (Node **link = &shard.bucket[h / SHARDS % BUCKETS]; *link; link = &(*link)->next) {
            if ((*link)->owned.key != key) continue;
            found = *link;
            *link = found->next;
            break;
        }
    }
    if (!found) return false;
    *owned = found->owned;
    free(found);
    return true;
}

uint64_t Ownership::mark() { return __atomic_load_n(&sequence_, __ATOMIC_RELAXED); }

void Ownership::take_context(CUcontext context, uint64_t mark, void (*each)(const Owned &, void *), void *argument) {
    for (Shard &shard : shard_) {
        Lock lock(shard.mutex);
        for (Node *&head : shard.bucket) {
            for (Node **link = &head; *link;) {
                Node *node = *link;
                if (node->owned.context != context || node->owned.sequence >= mark) {
                    link = &node->next;
                    continue;
                }
                *link = node->next;
                each(node->owned, argument);
                free(node);
            }
        }
    }
}

}  // namespace vgpu
