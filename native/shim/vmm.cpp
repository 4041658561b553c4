#include "vmm.h"

#include <stdlib.h>
#include <string.h>

#include "lock.h"
#include "memory.h"

namespace vgpu {

template <class T>
size_t Vmm::Table<T>::lower_bound(uint64_t wanted) const {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (key(item[middle]) < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

template <class T>
bool Vmm::Table<T>::insert(const T &value) {
    if (count == capacity) {
        size_t larger = capacity ? capacity * 2 : 64;
        T *moved = static_cast<T *>(realloc(item, larger * sizeof(T)));
        if (!moved) return false;
        item = moved;
        capacity = larger;
    }
    size_t at = lower_bound(key(value));
    memmove(item + at + 1, item + at, (count - at) * sizeof(T));
    item[at] = value;
    ++count;
    return true;
}

template <class T>
void Vmm::Table<T>::erase(size_t first, size_t last) {
    memmove(item + first, item + last, (count - last) * sizeof(T));
    count -= last - first;
}

Physical *Vmm::find(uint64_t handle) {
    size_t at = physical_.lower_bound(handle);
    return at < physical_.count && physical_.item[at].handle == handle ? physical_.item + at : nullptr;
}

void Vmm::collect(Physical *physical, void (*freed)(const Physical &, void *), void *argument) {
    if (physical->references || physical->mappings) return;
    freed(*physical, argument);
    size_t at = size_t(physical - physical_.item);
    physical_.erase(at, at + 1);
}

bool Vmm::created(uint64_t handle, uint64_t bytes, unsigned part) {
    return physical_.insert({handle, bytes, 1, 0, part});
}

void Vmm::retained(uint64_t handle) {
    if (Physical *physical = find(handle)) ++physical->references;
}

void Vmm::mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
    Physical *physical = find(handle);
    if (physical && mapping_.insert({address, bytes, handle})) ++physical->mappings;
}

void Vmm::released(uint64_t handle, void (*freed)(const Physical &, void *), void *argument) {
    Physical *physical = find(handle);
    if (!physical || physical->references == 0) return;
    --physical->references;
    collect(physical, freed, argument);
}

void Vmm::unmapped(uint64_t address, uint64_t bytes, void (*freed)(const Physical &, void *), void *argument) {
    size_t first = mapping_.lower_bound(address), last = first;
    for (; last < mapping_.count && mapping_.item[last].address - address < bytes; ++last) {
        Physical *physical = find(mapping_.item[last].handle);
        if (!physical) continue;
        --physical->mappings;
        collect(physical, freed, argument);
    }
    mapping_.erase(first, last);
}

}  // namespace vgpu

using namespace vgpu;

namespace {

void give_back_physical(const Physical &physical, void *t) {
    Tenant *owner = static_cast<Tenant *>(t);
    give_back(*owner->page, owner->slot, physical.part, physical.bytes);
}

}  // namespace

/* Needs no context, and is called without one (allocators' own threads): the location says which device. Host memory is not the
 * device's and goes through. */
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags) {
    Tenant *t = managed();
    int part = t && handle && prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? part_of(*t, prop->location.id) : UNKNOWN_PART;
    return charge(t, part, bytes, [&] { return VGPU_REAL(cuMemCreate)(handle, bytes, prop, flags); },
                  [&] {
                      Lock lock(t->vmm.mutex);
                      t->vmm.created(*handle, bytes, unsigned(part));
                  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    Tenant *t = managed();
    Guard guard;
    if (!t) return VGPU_REAL(cuMemRelease)(handle);
    Lock lock(t->vmm.mutex);
    CUresult result = VGPU_REAL(cuMemRelease)(handle);
    if (result == CUDA_SUCCESS) t->vmm.released(handle, give_back_physical, t);
    return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    Tenant *t = managed();
    Guard guard;
    CUresult result = VGPU_REAL(cuMemRetainAllocationHandle)(handle, address);
    if (!t || result != CUDA_SUCCESS) return result;
    Lock lock(t->vmm.mutex);
    t->vmm.retained(*handle);
    return result;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
    Tenant *t = managed();
    Guard guard;
    CUresult result = VGPU_REAL(cuMemMap)(address, bytes, offset, handle, flags);
    if (!t || result != CUDA_SUCCESS) return result;
    Lock lock(t->vmm.mutex);
    t->vmm.mapped(address, bytes, handle);
    return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    Tenant *t = managed();
    Guard guard;
    if (!t) return VGPU_REAL(cuMemUnmap)(address, bytes);
    Lock lock(t->vmm.mutex);
    CUresult result = VGPU_REAL(cuMemUnmap)(address, bytes);
    if (result == CUDA_SUCCESS) t->vmm.unmapped(address, bytes, give_back_physical, t);
    return result;
}
