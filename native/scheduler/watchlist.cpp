#include "watchlist.h"

#include <algorithm>

namespace vgpu {

void clear_slot(vgpu_control *control, uint32_t slot) {
    if (slot >= VGPU_MAX_PROCESSES)
        return;
    vgpu_control_process &process = control->process[slot];
    for (vgpu_control_usage &usage : process.device) {
        __atomic_store_n(&usage.used, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&usage.granted, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&usage.residual, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&usage.launches, 0, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&process.pid, 0, __ATOMIC_RELEASE);
}

bool Watchlist::add(uint64_t key, int pidfd, vgpu_control *control, uint32_t slot) {
    return entries_.emplace(key, Entry{pidfd, control, slot, false}).second;
}

Watchlist::Entry Watchlist::remove(uint64_t key) {
    auto found = entries_.find(key);
    if (found == entries_.end())
        return Entry{-1, nullptr, 0, false};
    Entry entry = found->second;
    entries_.erase(found);
    if (entry.dead)
        dead_.erase(std::find(dead_.begin(), dead_.end(), key));
    return entry;
}

int Watchlist::died(uint64_t key) {
    auto found = entries_.find(key);
    if (found == entries_.end() || found->second.dead)
        return -1;
    Entry &entry = found->second;
    entry.dead = true;
    if (entry.control)
        clear_slot(entry.control, entry.slot);
    dead_.push_back(key);
    return entry.pidfd;
}

} // namespace vgpu
