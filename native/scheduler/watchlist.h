/* Which processes are watched, what each holds, and which have died: the state without the thread, so that it is tested without one. */
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "vgpu/control.h"

namespace vgpu {

/* Frees a process's slot: usage first and the pid last, so that a reader never takes a foreign process's bytes for those of a new owner. */
void clear_slot(vgpu_control *control, uint32_t slot);

class Watchlist {
  public:
    struct Entry {
        int pidfd;
        vgpu_control *control; /* null: holds no slot */
        uint32_t slot;
        bool dead;
    };

    /* False if the key is already there. */
    bool add(uint64_t key, int pidfd, vgpu_control *control, uint32_t slot);

    /* The entry, taken out; its pidfd is then -1 if the key is unknown. */
    Entry remove(uint64_t key);

    /* The process has died: frees its slot and queues the key. Returns its pidfd, to be watched no longer; -1 if unknown or already dead. */
    int died(uint64_t key);

    /* Moves up to `capacity` queued keys out, and calls `closed(pidfd)` for each. */
    template <class Closed> size_t take(uint64_t *keys, size_t capacity, Closed closed) {
        size_t count = 0;
        while (count < capacity && !dead_.empty()) {
            keys[count] = dead_.front();
            dead_.pop_front();
            closed(entries_.at(keys[count]).pidfd);
            entries_.erase(keys[count]);
            ++count;
        }
        return count;
    }

    bool any_dead() const { return !dead_.empty(); }
    template <class Each> void each(Each each) const {
        for (const auto &item : entries_)
            each(item.second);
    }

  private:
    std::unordered_map<uint64_t, Entry> entries_;
    std::deque<uint64_t> dead_; /* in the order of their deaths */
};

} // namespace vgpu
