/* A driver that does nothing but keep books: what the shim's tests and benchmarks put behind it as libcuda.so.1.
 *
 *   STUB_DEVICES       number of devices (default 2); device i has the UUID bytes {i + 1, i + 1, ...}
 *   STUB_MEMORY        bytes per device (default 16 GiB)
 *   STUB_BOOK          a file of two 64-bit words, shared by all processes: bytes handed out now, and the most ever
 *   STUB_FOREIGN       bytes per device that somebody else holds (default 0): the device itself is short
 *
 * CUDA_VISIBLE_DEVICES is read at the first cuInit, as UUIDs alone: the only form in which the shim may pass it on. stub_calls(name) tells
 * how often a function ran.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vgpu/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX 16

struct CUctx_st {
    int device, primary, alive;
};
struct block {
    CUdeviceptr address;
    size_t bytes;
    int device;
    struct CUctx_st *context;
    struct block *next;
};
struct physical {
    size_t bytes;
    int device, references, mappings;
};
struct mapping {
    CUdeviceptr address;
    size_t bytes;
    struct physical *physical;
    struct mapping *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int initialised, count, visible[MAX];
static size_t used[MAX], memory;
static struct CUctx_st primary[MAX];
static int retained[MAX];
static struct block *blocks;
static struct mapping *mappings;
static CUdeviceptr next_address = 0x7f0000000000ull;
static __thread struct CUctx_st *current;

enum { CALLS_INIT, CALLS_ALLOC, CALLS_FREE, CALLS_LAUNCH, CALLS_LAUNCH_PTSZ, CALLS_COUNT };
static unsigned long calls[CALLS_COUNT];
static const char *call_names[] = {"cuInit", "cuMemAlloc_v2", "cuMemFree_v2", "cuLaunchKernel", "cuLaunchKernel_ptsz"};
#define COUNT(which) __atomic_fetch_add(&calls[CALLS_##which], 1, __ATOMIC_RELAXED)

EXPORT unsigned long stub_calls(const char *name) {
    for (int i = 0; i < CALLS_COUNT; ++i)
        if (strcmp(call_names[i], name) == 0) return calls[i];
    return 0;
}

static unsigned long long *book;

static void enter(long long bytes) {
    if (!book) return;
    unsigned long long now = __atomic_add_fetch(&book[0], bytes, __ATOMIC_SEQ_CST), peak = __atomic_load_n(&book[1], __ATOMIC_SEQ_CST);
    while (now > peak && !__atomic_compare_exchange_n(&book[1], &peak, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
}

static size_t number(const char *name, size_t fallback) {
    const char *text = getenv(name);
    return text ? strtoull(text, 0, 0) : fallback;
}

static void see_devices(void) {
    int all = (int)number("STUB_DEVICES", 2);
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    memory = number("STUB_MEMORY", 16ull << 30);
    count = 0;
    if (!list) {
        for (int i = 0; i < all; ++i) visible[count++] = i;
    } else {
        while (strncmp(list, "GPU-", 4) == 0) {
            int device = (int)strtoul((char[]){list[4], list[5], 0}, 0, 16) - 1;
            if (device < 0 || device >= all) break;
            visible[count++] = device;
            list += strcspn(list, ",");
            if (*list) ++list;
        }
    }
    for (int i = 0; i < count; ++i) used[visible[i]] = number("STUB_FOREIGN", 0);
}

EXPORT CUresult cuInit(unsigned int flags) {
    COUNT(INIT);
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (initialised) return CUDA_SUCCESS;
    initialised = 1;
    /* As real drivers do through their export tables: comes back by the exported name, whoever answers to it. */
    CUresult (*again)(unsigned int) = (CUresult(*)(unsigned int))dlsym(RTLD_DEFAULT, "cuInit");
    if (again) again(0);
    see_devices();
    if (getenv("STUB_BOOK")) book = mmap(0, 16, PROT_READ | PROT_WRITE, MAP_SHARED, open(getenv("STUB_BOOK"), O_RDWR | O_CLOEXEC), 0);
    return count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    *version = 13000;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *n) {
    if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
    *n = count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (ordinal < 0 || ordinal >= count) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    if (device < 0 || device >= count) return CUDA_ERROR_INVALID_DEVICE;
    memset(uuid->bytes, visible[device] + 1, 16);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= count) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = memory;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    if (!current || !current->alive) return CUDA_ERROR_INVALID_CONTEXT;
    *device = current->device;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    (void)flags;
    if (!context || device < 0 || device >= count) return CUDA_ERROR_INVALID_DEVICE;
    *context = current = calloc(1, sizeof **context);
    current->device = device;
    current->alive = 1;
    return CUDA_SUCCESS;
}

static void drop_context(CUcontext context) {
    pthread_mutex_lock(&mutex);
    for (struct block **link = &blocks; *link;) {
        struct block *b = *link;
        if (b->context != context) {
            link = &b->next;
            continue;
        }
        used[visible[b->device]] -= b->bytes;
        *link = b->next;
        free(b);
    }
    pthread_mutex_unlock(&mutex);
    context->alive = 0;
    if (current == context) current = 0;
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
    if (!context || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
    drop_context(context);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
    if (!context || device < 0 || device >= count) return CUDA_ERROR_INVALID_DEVICE;
    primary[device] = (struct CUctx_st){device, 1, 1};
    ++retained[device];
    *context = &primary[device];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    if (device < 0 || device >= count || !retained[device]) return CUDA_ERROR_INVALID_CONTEXT;
    if (--retained[device] == 0) drop_context(&primary[device]);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    if (device < 0 || device >= count) return CUDA_ERROR_INVALID_DEVICE;
    drop_context(&primary[device]);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
    *flags = 0;
    *active = retained[device] > 0;
    return CUDA_SUCCESS;
}

static CUresult take(CUdeviceptr *pointer, size_t bytes, struct CUctx_st *owner) {
    if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
    if (!current || !current->alive) return CUDA_ERROR_INVALID_CONTEXT;
    if (!pointer || !bytes) return CUDA_ERROR_INVALID_VALUE;
    int device = current->device, physical = visible[device];
    pthread_mutex_lock(&mutex);
    if (bytes > memory || used[physical] > memory - bytes) {
        pthread_mutex_unlock(&mutex);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct block *b = malloc(sizeof *b);
    *b = (struct block){next_address, bytes, device, owner, blocks};
    next_address += (bytes + 511) & ~511ull;
    used[physical] += bytes;
    blocks = b;
    *pointer = b->address;
    enter((long long)bytes);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

static CUresult give(CUdeviceptr pointer) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    for (struct block **link = &blocks; *link; link = &(*link)->next) {
        struct block *b = *link;
        if (b->address != pointer) continue;
        enter(-(long long)b->bytes);
        used[visible[b->device]] -= b->bytes;
        *link = b->next;
        free(b);
        result = CUDA_SUCCESS;
        break;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    COUNT(ALLOC);
    return take(pointer, bytes, current);
}

EXPORT CUresult cuMemAlloc(unsigned int *pointer, unsigned int bytes) {
    CUdeviceptr wide;
    CUresult result = take(&wide, bytes, current);
    if (result == CUDA_SUCCESS) *pointer = (unsigned int)wide;
    return result;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element) {
    (void)element;
    if (!pitch) return CUDA_ERROR_INVALID_VALUE;
    *pitch = (width + 255) & ~(size_t)255; /* less than the shim's estimate: it must set its books right */
    return take(pointer, *pitch * height, current);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags) {
    (void)flags;
    return take(pointer, bytes, current);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    (void)stream;
    return take(pointer, bytes, 0);
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    (void)stream;
    return take(pointer, bytes, 0);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
    (void)pool, (void)stream;
    return take(pointer, bytes, 0);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
    COUNT(FREE);
    return give(pointer);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    (void)stream;
    return give(pointer);
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
    (void)stream;
    return give(pointer);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    if (!available || !total) return CUDA_ERROR_INVALID_VALUE;
    *total = memory;
    *available = memory - used[visible[current->device]];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags) {
    if (!handle || !prop || flags) return CUDA_ERROR_INVALID_VALUE;
    int on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (on_device && (prop->location.id < 0 || prop->location.id >= count)) return CUDA_ERROR_INVALID_DEVICE;
    struct physical *p = malloc(sizeof *p);
    *p = (struct physical){bytes, on_device ? prop->location.id : -1, 1, 0};
    if (on_device) used[visible[p->device]] += bytes;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)p;
    return CUDA_SUCCESS;
}

static void collect(struct physical *p) {
    if (p->references || p->mappings) return;
    if (p->device >= 0) used[visible[p->device]] -= p->bytes;
    free(p);
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct physical *p = (struct physical *)(uintptr_t)handle;
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    --p->references;
    collect(p);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
    (void)offset, (void)flags;
    struct mapping *m = malloc(sizeof *m);
    *m = (struct mapping){address, bytes, (struct physical *)(uintptr_t)handle, mappings};
    ++m->physical->mappings;
    mappings = m;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    for (struct mapping **link = &mappings; *link;) {
        struct mapping *m = *link;
        if (m->address < address || m->address >= address + bytes) {
            link = &m->next;
            continue;
        }
        *link = m->next;
        --m->physical->mappings;
        collect(m->physical);
        free(m);
        result = CUDA_SUCCESS;
    }
    return result;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned shared,
                               CUstream stream, void **params, void **extra) {
    (void)f, (void)a, (void)b, (void)c, (void)d, (void)e, (void)g, (void)shared, (void)stream, (void)params, (void)extra;
    COUNT(LAUNCH);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned shared,
                                    CUstream stream, void **params, void **extra) {
    (void)f, (void)a, (void)b, (void)c, (void)d, (void)e, (void)g, (void)shared, (void)stream, (void)params, (void)extra;
    COUNT(LAUNCH_PTSZ);
    return CUDA_SUCCESS;
}

/* Reached by an old exported name and its arguments in every register: proves that trampolines keep them. */
EXPORT CUresult cuParamSetf(CUfunction f, int offset, float value) {
    return f == (CUfunction)1 && offset == 2 && value == 3.5f ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/* Exported by no header that the shim knows. */
EXPORT CUresult cuFromTheFuture(void) { return CUDA_SUCCESS; }

static const struct {
    const char *name;
    int since;
    const char *symbol, *per_thread;
} versions[] = {
    {"cuInit", 2000, "cuInit", 0},
    {"cuDriverGetVersion", 2020, "cuDriverGetVersion", 0},
    {"cuDeviceGetCount", 2000, "cuDeviceGetCount", 0},
    {"cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2", 0},
    {"cuCtxSetCurrent", 4000, "cuCtxSetCurrent", 0},
    {"cuMemAlloc", 2000, "cuMemAlloc", 0},
    {"cuMemAlloc", 3020, "cuMemAlloc_v2", 0},
    {"cuMemFree", 3020, "cuMemFree_v2", 0},
    {"cuMemGetInfo", 3020, "cuMemGetInfo_v2", 0},
    {"cuMemAllocAsync", 11020, "cuMemAllocAsync", "cuMemAllocAsync_ptsz"},
    {"cuMemCreate", 10020, "cuMemCreate", 0},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2", 0},
    {"cuDevicePrimaryCtxRetain", 7000, "cuDevicePrimaryCtxRetain", 0},
    {"cuLaunchKernel", 4000, "cuLaunchKernel", "cuLaunchKernel_ptsz"},
    {"cuGetProcAddress", 11030, "cuGetProcAddress", 0},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2", 0},
    {"cuFromTheFuture", 13000, "cuFromTheFuture", 0},
};

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
    if (!symbol || !pfn) return CUDA_ERROR_INVALID_VALUE;
    const char *best = 0;
    int known = 0;
    for (unsigned i = 0; i < sizeof versions / sizeof *versions; ++i) {
        if (strcmp(versions[i].name, symbol) != 0) continue;
        known = 1;
        if (versions[i].since > version) continue;
        int per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && versions[i].per_thread;
        best = per_thread ? versions[i].per_thread : versions[i].symbol;
    }
    Dl_info info;
    dladdr((void *)cuGetProcAddress_v2, &info);
    void *self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *pfn = best ? dlsym(self, best) : 0;
    if (status)
        *status = best    ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                          : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return best ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(symbol, pfn, version, flags, 0);
}
