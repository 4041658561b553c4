/* The physical allocations that a program makes by cuMemCreate. The driver frees one when its last reference (create, retain) and its last
 * mapping are gone, whichever comes last; only then its bytes are given back. */
#pragma once
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

namespace vgpu {

struct Physical {
    uint64_t handle;
    uint64_t bytes;
    uint32_t references;
    uint32_t mappings;
    unsigned part;
};

/* Zero-initialised memory is empty. All methods with `mutex` held: releasing and unmapping hold it across the driver's call too, so that
 * a handle which the driver gives out again at once is not mistaken for the old one. Both tables are sorted arrays: programs have
 * hundreds of these, not millions, and an unmap asks for a range. */
class Vmm {
  public:
    pthread_mutex_t mutex;
    bool created(uint64_t handle, uint64_t bytes, unsigned part);
    void retained(uint64_t handle);
    void mapped(uint64_t address, uint64_t bytes, uint64_t handle);
    /* Both call `freed` for each allocation whose memory the driver gives back with this. */
    void released(uint64_t handle, void (*freed)(const Physical &, void *), void *argument);
    void unmapped(uint64_t address, uint64_t bytes, void (*freed)(const Physical &, void *), void *argument);

  private:
    struct Mapping {
        uint64_t address;
        uint64_t bytes;
        uint64_t handle;
    };
    template <class T>
    struct Table {
        T *item;
        size_t count;
        size_t capacity;
        size_t lower_bound(uint64_t key) const;
        bool insert(const T &value);
        void erase(size_t first, size_t last);
    };
    static uint64_t key(const Physical &p) { return p.handle; }
    static uint64_t key(const Mapping &m) { return m.address; }
    Physical *find(uint64_t handle);
    void collect(Physical *physical, void (*freed)(const Physical &, void *), void *argument);

    Table<Physical> physical_;
    Table<Mapping> mapping_;
};

}  // namespace vgpu
