/* Finds the real libcuda.so.1 and libnvidia-ml.so.1: the loader's own order, minus ourselves.
 *
 * dlopen by name would answer with the shim (its SONAME is that name), so each candidate is opened by its absolute path, which glibc
 * matches by file and not by SONAME. A compat library or the simulator in LD_LIBRARY_PATH counts as the driver, as it does without us.
 */
#include "driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "marker.h"

namespace vgpu {
namespace {

const char *const file_name[] = {"libcuda.so.1", "libnvidia-ml.so.1"};

/* Where drivers are installed outside of the loader's cache: distributions, container runtimes, WSL. */
const char *const usual_directory[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu",
                                       "/usr/local/nvidia/lib64",   "/usr/local/nvidia/lib", "/usr/lib/wsl/lib"};

/* Opens one candidate unless it is a shim: this file under another name, or another build of it. */
void *open_candidate(const char *path) {
    struct stat own, other;
    Dl_info info;
    if (stat(path, &other) != 0) return nullptr;
    if (dladdr(reinterpret_cast<void *>(&open_candidate), &info) && info.dli_fname && stat(info.dli_fname, &own) == 0 &&
        own.st_dev == other.st_dev && own.st_ino == other.st_ino)
        return nullptr;
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!handle) {
        log("cannot open %s: %s", path, dlerror());
        return nullptr;
    }
    if (dlsym(handle, VGPU_MARKER_NAME)) {
        dlclose(handle);
        return nullptr;
    }
    return handle;
}

void *open_in(const char *directory, size_t length, const char *name) {
    char path[4096];
    if (length == 0) {
        directory = ".";
        length = 1;
    }
    int written = snprintf(path, sizeof path, "%.*s/%s", int(length), directory, name);
    if (written < 0 || size_t(written) >= sizeof path) return nullptr;
    return open_candidate(path);
}

void *open_in_list(const char *list, const char *name) {
    while (list && *list) {
        size_t length = strcspn(list, ":;");
        if (void *handle = open_in(list, length, name)) return handle;
        if (!list[length]) return nullptr;
        list += length + 1;
    }
    return nullptr;
}

/* /etc/ld.so.cache in glibc's format since 2.2 ("glibc-ld.so.cache1.1"), possibly behind the old table. All offsets are checked. */
struct CacheHeader {
    char magic[20];
    uint32_t count;
    uint32_t strings_size;
    uint32_t unused[5];
};
struct CacheEntry {
    int32_t flags;
    uint32_t key;
    uint32_t value;
    uint32_t os_version;
    uint64_t hwcap;
};
const int32_t cache_flags = 0x0303; /* ELF of libc6, x86-64 */

void *open_from_cache(const char *data, size_t size, const char *name) {
    static const char magic[] = "glibc-ld.so.cache1.1";
    const char *start = static_cast<const char *>(memmem(data, size, magic, sizeof magic - 1));
    if (!start) return nullptr;
    size -= size_t(start - data);
    CacheHeader header;
    if (size < sizeof header) return nullptr;
    memcpy(&header, start, sizeof header);
    if (header.count > (size - sizeof header) / sizeof(CacheEntry)) return nullptr;
    for (uint32_t i = 0; i < header.count; ++i) {
        CacheEntry entry;
        memcpy(&entry, start + sizeof header + i * sizeof entry, sizeof entry);
        if (entry.flags != cache_flags || entry.key >= size || entry.value >= size) continue;
        if (!memchr(start + entry.key, 0, size - entry.key) || !memchr(start + entry.value, 0, size - entry.value)) continue;
        if (strcmp(start + entry.key, name) != 0) continue;
        if (void *handle = open_candidate(start + entry.value)) return handle;
    }
    return nullptr;
}

void *open_cached(const char *name) {
    int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return nullptr;
    struct stat st;
    void *handle = nullptr;
    if (fstat(fd, &st) == 0 && st.st_size > 0) {
        void *data = mmap(nullptr, size_t(st.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
        if (data != MAP_FAILED) {
            handle = open_from_cache(static_cast<const char *>(data), size_t(st.st_size), name);
            munmap(data, size_t(st.st_size));
        }
    }
    close(fd);
    return handle;
}

void *open_real(const char *name) {
    if (void *handle = open_in_list(getenv("LD_LIBRARY_PATH"), name)) return handle;
    if (void *handle = open_cached(name)) return handle;
    for (const char *directory : usual_directory)
        if (void *handle = open_in(directory, strlen(directory), name)) return handle;
    log("no real %s found", name);
    return nullptr;
}

/* Two threads may open at once: dlopen counts references, so both get the same handle. A failure is not kept: each lacking symbol
 * asks again once, and its slot then keeps the answer. */
std::atomic<void *> handle_of[2];

}  // namespace

void *real_symbol(Library library, const char *name) {
    void *handle = handle_of[library].load(std::memory_order_acquire);
    if (!handle) {
        Guard guard;
        handle = open_real(file_name[library]);
        if (!handle) return nullptr;
        handle_of[library].store(handle, std::memory_order_release);
    }
    return dlsym(handle, name);
}

}  // namespace vgpu
