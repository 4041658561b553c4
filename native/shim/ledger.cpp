#include "ledger.h"

namespace vgpu {
namespace {

uint64_t load(const uint64_t &word) { return __atomic_load_n(&word, __ATOMIC_SEQ_CST); }

uint64_t sum(uint64_t a, uint64_t b) {
    uint64_t result;
    return __builtin_add_overflow(a, b, &result) ? UINT64_MAX : result;
}

vgpu_control_usage &usage(vgpu_control &page, unsigned slot, unsigned part) { return page.process[slot].device[part]; }

}  // namespace

uint64_t process_bytes(const vgpu_control_usage &usage) {
    /* `granted` first: a grant moves from there into `used`, and a reader that is interrupted between the two may count it twice,
     * which is safe, but never not at all. */
    uint64_t granted = load(usage.granted);
    return sum(sum(granted, load(usage.used)), load(usage.residual));
}

uint64_t tenant_bytes(const vgpu_control &page, unsigned part) {
    uint32_t end = __atomic_load_n(&page.process_high_water, __ATOMIC_ACQUIRE);
    if (end > VGPU_MAX_PROCESSES) end = VGPU_MAX_PROCESSES;
    uint64_t total = 0;
    for (uint32_t i = 0; i < end; ++i) {
        if (__atomic_load_n(&page.process[i].pid, __ATOMIC_RELAXED) == 0) continue;
        total = sum(total, process_bytes(page.process[i].device[part]));
    }
    return total;
}

Snapshot snapshot(const vgpu_control &page, unsigned part) {
    uint64_t limit = load(page.device[part].memory_limit);
    uint64_t used = tenant_bytes(page, part);
    return {limit, used < limit ? used : limit};
}

bool reserve(vgpu_control &page, unsigned slot, unsigned part, uint64_t bytes) {
    uint64_t limit = load(page.device[part].memory_limit);
    /* Also keeps the word far from overflow: what is above the limit is never added, not even for an instant. */
    if (bytes > limit) return false;
    add(page, slot, part, bytes);
    if (tenant_bytes(page, part) <= limit) return true;
    give_back(page, slot, part, bytes);
    return false;
}

void add(vgpu_control &page, unsigned slot, unsigned part, uint64_t bytes) {
    __atomic_fetch_add(&usage(page, slot, part).used, bytes, __ATOMIC_SEQ_CST);
}

void give_back(vgpu_control &page, unsigned slot, unsigned part, uint64_t bytes) {
    uint64_t &used = usage(page, slot, part).used;
    uint64_t old = load(used);
    while (!__atomic_compare_exchange_n(&used, &old, old > bytes ? old - bytes : 0, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
}

}  // namespace vgpu
