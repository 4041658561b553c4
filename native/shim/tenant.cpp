#include "tenant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

namespace vgpu {
namespace {

Anchor none; /* what processes that never attach look at: always empty */

/* Not wiped: lets a child close what it inherited before it attaches for itself. */
Tenant *latest;

void drop_inherited() {
    Tenant *inherited = latest;
    if (!inherited || inherited->pid == getpid()) return;
    inherited->channel.drop();
    munmap(inherited->page, sizeof(vgpu_control));
    munmap(inherited, sizeof(Tenant));
    latest = nullptr;
}

void *zeroed(size_t size) {
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

std::atomic<Anchor *> anchor{&none};

Anchor *own_anchor() {
    Anchor *current = anchor.load(std::memory_order_acquire);
    if (current != &none) return current;
    const size_t size = size_t(sysconf(_SC_PAGESIZE));
    void *page = zeroed(size);
    if (!page) return nullptr;
    if (madvise(page, size, MADV_WIPEONFORK) != 0) {
        log("this kernel cannot wipe pages on fork; unmanaged");
        munmap(page, size);
        return nullptr;
    }
    Anchor *made = static_cast<Anchor *>(page), *expected = &none;
    if (anchor.compare_exchange_strong(expected, made)) return made;
    munmap(page, size);
    return expected;
}

Tenant *attach(Anchor *own) {
    if (Tenant *already = own->tenant.load()) return already;
    if (own->attempted) return nullptr;
    own->attempted = 1;
    const char *path = getenv("VGPU_SHIM_SOCKET"), *token = getenv("VGPU_TOKEN");
    if (!path || !*path || !token || !*token) {
        log("VGPU_SHIM_SOCKET or VGPU_TOKEN is not set; unmanaged");
        return nullptr;
    }
    drop_inherited();
    Tenant *made = static_cast<Tenant *>(zeroed(sizeof(Tenant)));
    if (!made) return nullptr;
    made->pid = getpid();
    made->page = made->channel.attach(path, token, &made->slot);
    if (!made->page) {
        munmap(made, sizeof(Tenant));
        return nullptr;
    }
    latest = made;
    own->tenant.store(made, std::memory_order_release);
    return made;
}

int part_of(const Tenant &t, CUdevice device) {
    if (device < 0 || device >= t.ordinals.load(std::memory_order_acquire)) return UNKNOWN_PART;
    return t.part_of[device].load(std::memory_order_relaxed);
}

int current_part(const Tenant &t) {
    CUdevice device;
    return cuCtxGetDevice(&device) == CUDA_SUCCESS ? part_of(t, device) : UNKNOWN_PART;
}

int part_of_uuid(const Tenant &t, const void *uuid) {
    uint32_t count = t.page->device_count;
    for (uint32_t i = 0; i < count && i < VGPU_MAX_DEVICES; ++i)
        if (memcmp(t.page->device[i].uuid, uuid, 16) == 0) return int(i);
    return UNKNOWN_PART;
}

bool parse_uuid(const char *text, unsigned char uuid[16]) {
    if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0) return false;
    int digits = 0;
    for (text += 4; *text; ++text) {
        if (*text == '-') continue;
        int value = *text >= '0' && *text <= '9' ? *text - '0' : (*text | 32) >= 'a' && (*text | 32) <= 'f' ? (*text | 32) - 'a' + 10 : -1;
        if (value < 0 || digits == 32) return false;
        uuid[digits / 2] = static_cast<unsigned char>(digits % 2 ? uuid[digits / 2] << 4 | value : value);
        ++digits;
    }
    return digits == 32;
}

void format_uuid(const uint8_t uuid[16], char *text) {
    text += sprintf(text, "GPU");
    for (int i = 0; i < 16; ++i) text += sprintf(text, i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}

}  // namespace vgpu
