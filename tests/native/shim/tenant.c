/* A tenant that does what it reads on stdin, one command a line, and answers each with one line: the numeric results, in order.
 * Finds the driver as frameworks do: dlopen("libcuda.so.1") and dlsym, or with TENANT_LOOKUP=proc all by cuGetProcAddress_v2 alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vgpu/cuda_abi.h"
#include "vgpu/nvml_abi.h"

#define VGPU_HOOK(library, name, result, ...) typedef result name##_type __VA_ARGS__;
#define VGPU_FORWARD(library, name)
#include "vgpu/hooks.def"

static void *cuda, *nvml;
static cuGetProcAddress_v2_type *lookup;
static CUdeviceptr pointers[4096];

static void *by_dlsym(const char *symbol) { return dlsym(cuda, symbol); }

static void *find(const char *symbol, const char *name) {
    void *function = 0;
    if (!lookup) return by_dlsym(symbol);
    lookup(name, &function, 13000, CU_GET_PROC_ADDRESS_DEFAULT, 0);
    return function;
}
#define CU(symbol, name) ((symbol##_type *)find(#symbol, name))
#define NV(symbol) ((symbol##_type *)dlsym(nvml, #symbol))

struct churn {
    int rounds;
    unsigned seed;
    CUcontext context;
};

/* Allocates and frees at random; any result but success and out-of-memory is counted as wrong. */
static void *churn(void *argument) {
    struct churn *c = argument;
    CUdeviceptr held[16] = {0};
    long wrong = 0;
    ((CUresult(*)(CUcontext))by_dlsym("cuCtxSetCurrent"))(c->context);
    for (int i = 0; i < c->rounds; ++i) {
        int slot = rand_r(&c->seed) % 16;
        if (held[slot]) {
            wrong += CU(cuMemFree_v2, "cuMemFree")(held[slot]) != CUDA_SUCCESS;
            held[slot] = 0;
            continue;
        }
        CUresult result = CU(cuMemAlloc_v2, "cuMemAlloc")(&held[slot], 1 + rand_r(&c->seed) % (64u << 20));
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            held[slot] = 0;
        else
            wrong += result != CUDA_SUCCESS;
    }
    for (int i = 0; i < 16; ++i)
        if (held[i]) wrong += CU(cuMemFree_v2, "cuMemFree")(held[i]) != CUDA_SUCCESS;
    return (void *)wrong;
}

static void run(char *line) {
    char word[32] = "", text[256] = "";
    unsigned long long a = 0, b = 0, c = 0;
    sscanf(line, "%31s %llu %llu %llu", word, &a, &b, &c);
#define IS(name) (strcmp(word, name) == 0)
    if (IS("init")) {
        printf("%d\n", CU(cuInit, "cuInit")((unsigned)a));
    } else if (IS("count")) {
        int n = -1;
        int result = ((CUresult(*)(int *))by_dlsym("cuDeviceGetCount"))(&n);
        printf("%d %d\n", result, n);
    } else if (IS("uuid")) {
        CUuuid uuid = {{0}};
        int result = ((CUresult(*)(CUuuid *, CUdevice))by_dlsym("cuDeviceGetUuid"))(&uuid, (int)a);
        printf("%d %d\n", result, uuid.bytes[0]);
    } else if (IS("context")) {
        CUcontext context = 0;
        int result = CU(cuCtxCreate_v2, "cuCtxCreate")(&context, 0, (int)a);
        printf("%d %llu\n", result, (unsigned long long)(uintptr_t)context);
    } else if (IS("destroy")) {
        printf("%d\n", ((cuCtxDestroy_v2_type *)by_dlsym("cuCtxDestroy_v2"))((CUcontext)(uintptr_t)a));
    } else if (IS("retain")) {
        CUcontext context = 0;
        int result = CU(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")(&context, (int)a);
        if (result == 0) ((CUresult(*)(CUcontext))by_dlsym("cuCtxSetCurrent"))(context);
        printf("%d\n", result);
    } else if (IS("unretain")) {
        printf("%d\n", ((cuDevicePrimaryCtxRelease_v2_type *)by_dlsym("cuDevicePrimaryCtxRelease_v2"))((int)a));
    } else if (IS("reset")) {
        printf("%d\n", ((cuDevicePrimaryCtxReset_v2_type *)by_dlsym("cuDevicePrimaryCtxReset_v2"))((int)a));
    } else if (IS("alloc")) {
        printf("%d\n", CU(cuMemAlloc_v2, "cuMemAlloc")(&pointers[b], a));
    } else if (IS("alloc_null")) {
        printf("%d\n", CU(cuMemAlloc_v2, "cuMemAlloc")(0, a));
    } else if (IS("managed")) {
        printf("%d\n", ((cuMemAllocManaged_type *)by_dlsym("cuMemAllocManaged"))(&pointers[b], a, CU_MEM_ATTACH_GLOBAL));
    } else if (IS("async")) {
        printf("%d\n", CU(cuMemAllocAsync, "cuMemAllocAsync")(&pointers[b], a, 0));
    } else if (IS("async_ptsz")) {
        printf("%d\n", ((cuMemAllocAsync_ptsz_type *)by_dlsym("cuMemAllocAsync_ptsz"))(&pointers[b], a, 0));
    } else if (IS("pool")) {
        printf("%d\n", ((cuMemAllocFromPoolAsync_type *)by_dlsym("cuMemAllocFromPoolAsync"))(&pointers[b], a, 0, 0));
    } else if (IS("pitch")) {
        size_t pitch = 0;
        int result = ((cuMemAllocPitch_v2_type *)by_dlsym("cuMemAllocPitch_v2"))(&pointers[c], &pitch, a, b, 4);
        printf("%d %zu\n", result, pitch);
    } else if (IS("free")) {
        printf("%d\n", CU(cuMemFree_v2, "cuMemFree")(pointers[a]));
    } else if (IS("free_async")) {
        printf("%d\n", ((cuMemFreeAsync_type *)by_dlsym("cuMemFreeAsync"))(pointers[a], 0));
    } else if (IS("free_unknown")) {
        printf("%d\n", CU(cuMemFree_v2, "cuMemFree")(a));
    } else if (IS("create")) {
        CUmemAllocationProp prop = {0};
        CUmemGenericAllocationHandle handle = 0;
        prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        prop.location.type = (CUmemLocationType)b;
        prop.location.id = (int)c;
        int result = CU(cuMemCreate, "cuMemCreate")(&handle, a, &prop, 0);
        printf("%d %llu\n", result, handle);
    } else if (IS("release")) {
        printf("%d\n", ((cuMemRelease_type *)by_dlsym("cuMemRelease"))(a));
    } else if (IS("map")) {
        printf("%d\n", ((cuMemMap_type *)by_dlsym("cuMemMap"))(a, b, 0, c, 0));
    } else if (IS("unmap")) {
        printf("%d\n", ((cuMemUnmap_type *)by_dlsym("cuMemUnmap"))(a, b));
    } else if (IS("info")) {
        size_t available = 0, total = 0;
        int result = CU(cuMemGetInfo_v2, "cuMemGetInfo")(&available, &total);
        printf("%d %zu %zu\n", result, available, total);
    } else if (IS("total")) {
        size_t total = 0;
        int result = ((cuDeviceTotalMem_v2_type *)by_dlsym("cuDeviceTotalMem_v2"))(&total, (int)a);
        printf("%d %zu\n", result, total);
    } else if (IS("launch")) {
        int result = 0;
        for (unsigned long long i = 0; i < a; ++i) result |= CU(cuLaunchKernel, "cuLaunchKernel")(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
        printf("%d\n", result);
    } else if (IS("paramf")) {
        printf("%d\n", ((CUresult(*)(CUfunction, int, float))by_dlsym("cuParamSetf"))((CUfunction)1, 2, 3.5f));
    } else if (IS("lacking")) {
        printf("%d\n", ((CUresult(*)(void))by_dlsym("cuMemHostAlloc"))());
    } else if (IS("symbol")) {
        /* symbol VERSION FLAGS NAME: result, status, and whose function it is: "libcuda.so.1's file: exported name". */
        void *function = 0;
        CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)-1;
        sscanf(line, "%*s %llu %llu %255s", &a, &b, text);
        int result = ((cuGetProcAddress_v2_type *)by_dlsym("cuGetProcAddress_v2"))(text, &function, (int)a, b, &status);
        Dl_info info = {0};
        if (function) dladdr(function, &info);
        printf("%d %d %s %s\n", result, (int)status, info.dli_fname ? info.dli_fname : "-", info.dli_sname ? info.dli_sname : "-");
    } else if (IS("environment")) {
        sscanf(line, "%*s %255s", text);
        printf("%s\n", getenv(text) ? getenv(text) : "(unset)");
    } else if (IS("churn")) {
        struct churn job[8];
        pthread_t thread[8];
        CUcontext context = 0;
        long wrong = 0;
        ((CUresult(*)(CUcontext *))by_dlsym("cuCtxGetCurrent"))(&context);
        for (int i = 0; i < (int)a; ++i) {
            job[i] = (struct churn){(int)b, (unsigned)c + i, context};
            pthread_create(&thread[i], 0, churn, &job[i]);
        }
        for (int i = 0; i < (int)a; ++i) {
            void *w;
            pthread_join(thread[i], &w);
            wrong += (long)w;
        }
        printf("%ld\n", wrong);
    } else if (IS("fork")) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            printf("%d\n", (int)getpid());
        } else {
            int status = 0;
            waitpid(child, &status, 0);
            printf("%d\n", status);
        }
    } else if (IS("nvml")) {
        nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        printf("%d\n", nvml ? (int)NV(nvmlInit_v2)() : -1);
    } else if (IS("nvml_devices")) {
        unsigned n = 0;
        int result = NV(nvmlDeviceGetCount_v2)(&n);
        printf("%d", result);
        for (unsigned i = 0; i < n; ++i) {
            nvmlDevice_t device = 0;
            char uuid[96] = "?";
            unsigned index = 99;
            NV(nvmlDeviceGetHandleByIndex_v2)(i, &device);
            ((nvmlReturn_t(*)(nvmlDevice_t, char *, unsigned))dlsym(nvml, "nvmlDeviceGetUUID"))(device, uuid, sizeof uuid);
            NV(nvmlDeviceGetIndex)(device, &index);
            printf(" %s=%u", uuid, index);
        }
        nvmlDevice_t device = 0;
        printf(" %d\n", NV(nvmlDeviceGetHandleByIndex_v2)(n, &device));
    } else if (IS("nvml_uuid")) {
        nvmlDevice_t device = 0;
        sscanf(line, "%*s %255s", text);
        printf("%d\n", NV(nvmlDeviceGetHandleByUUID)(text, &device));
    } else if (IS("nvml_memory")) {
        nvmlDevice_t device = 0;
        nvmlMemory_t one = {0};
        nvmlMemory_v2_t two = {VGPU_NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2), 0, 0, 0, 0};
        NV(nvmlDeviceGetHandleByIndex_v2)((unsigned)a, &device);
        int first = NV(nvmlDeviceGetMemoryInfo)(device, &one), second = NV(nvmlDeviceGetMemoryInfo_v2)(device, &two);
        printf("%d %llu %llu %llu %d %llu %llu %llu\n", first, one.total, one.used, one.free, second, two.total, two.used, two.free);
    } else if (IS("nvml_processes")) {
        nvmlDevice_t device = 0;
        nvmlProcessInfo_v2_t info[8];
        unsigned n = (unsigned)b;
        NV(nvmlDeviceGetHandleByIndex_v2)((unsigned)a, &device);
        int result = NV(nvmlDeviceGetComputeRunningProcesses_v3)(device, &n, info);
        printf("%d %u", result, n);
        for (unsigned i = 0; result == 0 && i < n; ++i) printf(" %u=%llu", info[i].pid, info[i].usedGpuMemory);
        printf("\n");
    } else if (IS("exit")) {
        exit((int)a);
    } else {
        printf("? %s", line);
    }
}

int main(void) {
    char line[512];
    setvbuf(stdin, 0, _IONBF, 0); /* a forked child reads on where its parent stopped */
    cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    if (getenv("TENANT_LOOKUP")) lookup = (cuGetProcAddress_v2_type *)by_dlsym("cuGetProcAddress_v2");
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        run(line);
        fflush(stdout);
    }
    return 0;
}
