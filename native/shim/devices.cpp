#include "devices.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lock.h"

namespace vgpu {
namespace {

const size_t UUID_TEXT = 41;

/* One entry of the user's list as an index into the lease's devices; UNKNOWN_PART ends the list. */
int entry(const vgpu_control &page, const char *text, size_t length) {
    while (length && (*text == ' ' || *text == '\t')) ++text, --length;
    while (length && (text[length - 1] == ' ' || text[length - 1] == '\t')) --length;
    if (length == 0 || length >= UUID_TEXT) return UNKNOWN_PART;
    unsigned count = page.device_count < VGPU_MAX_DEVICES ? page.device_count : VGPU_MAX_DEVICES;
    if (strspn(text, "0123456789") >= length) {
        unsigned long index = strtoul(text, nullptr, 10);
        return index < count ? int(index) : UNKNOWN_PART;
    }
    int found = UNKNOWN_PART;
    for (unsigned i = 0; i < count; ++i) {
        char uuid[UUID_TEXT];
        format_uuid(page.device[i].uuid, uuid);
        if (strncasecmp(uuid, text, length) != 0) continue;
        if (found != UNKNOWN_PART) return UNKNOWN_PART; /* an ambiguous prefix is invalid, as it is to CUDA */
        found = int(i);
    }
    return found;
}

}  // namespace

void visible_devices(const vgpu_control &page, const char *own, char *text, size_t size) {
    size_t used = 0;
    bool taken[VGPU_MAX_DEVICES] = {};
    auto append = [&](int part) {
        if (used + UUID_TEXT + 1 > size) return;
        if (used) text[used++] = ',';
        format_uuid(page.device[part].uuid, text + used);
        used += UUID_TEXT - 1;
    };
    text[0] = 0;
    if (!own) {
        for (unsigned i = 0; i < page.device_count && i < VGPU_MAX_DEVICES; ++i) append(int(i));
        return;
    }
    for (;;) {
        size_t length = strcspn(own, ",");
        int part = entry(page, own, length);
        if (part == UNKNOWN_PART || taken[part]) return;
        taken[part] = true;
        append(part);
        if (!own[length]) return;
        own += length + 1;
    }
}

void learn_ordinals(Tenant *t) {
    int count = 0;
    if (cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
    if (count > MAX_ORDINALS) count = MAX_ORDINALS;
    for (int i = 0; i < count; ++i) {
        CUuuid uuid;
        /* _v2 names a MIG instance, where the first version names its GPU. */
        CUresult result = cuDeviceGetUuid_v2(&uuid, i);
        if (result == CUDA_ERROR_NOT_FOUND) result = cuDeviceGetUuid(&uuid, i);
        t->part_of[i].store(result == CUDA_SUCCESS ? part_of_uuid(*t, uuid.bytes) : UNKNOWN_PART, std::memory_order_relaxed);
    }
    t->ordinals.store(count, std::memory_order_release);
}

}  // namespace vgpu

using namespace vgpu;

/* The driver reads CUDA_VISIBLE_DEVICES in its first successful cuInit; the program's own value is back before we return. Several threads
 * may come here at once: the first sets the view, the last restores, and none waits for another inside the driver, which may itself
 * come back to us from a thread of its own. */
CUresult cuInit(unsigned int flags) {
    if (depth > 0) return VGPU_REAL(cuInit)(flags);
    Guard guard;
    Tenant *known = tenant();
    if (known && known->ordinals.load(std::memory_order_acquire)) return VGPU_REAL(cuInit)(flags);
    Anchor *own = own_anchor();
    if (!own) return VGPU_REAL(cuInit)(flags);

    static char *saved; /* the program's value while `initialising` is above zero; under own->mutex */
    Tenant *t;
    {
        Lock lock(own->mutex);
        t = attach(own);
        if (t && own->initialising++ == 0) {
            char view[VGPU_MAX_DEVICES * (UUID_TEXT + 1)];
            const char *value = getenv("CUDA_VISIBLE_DEVICES");
            saved = value ? strdup(value) : nullptr;
            visible_devices(*t->page, value, view, sizeof view);
            setenv("CUDA_VISIBLE_DEVICES", view, 1);
        }
    }
    CUresult result = VGPU_REAL(cuInit)(flags);
    if (!t) return result;
    Lock lock(own->mutex);
    if (--own->initialising == 0) {
        if (saved)
            setenv("CUDA_VISIBLE_DEVICES", saved, 1);
        else
            unsetenv("CUDA_VISIBLE_DEVICES");
        free(saved);
        saved = nullptr;
    }
    if (result == CUDA_SUCCESS && t->ordinals.load() == 0) learn_ordinals(t);
    return result;
}
