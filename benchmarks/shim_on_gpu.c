/* Times what a program does all day on a real GPU: launches, allocations, queries. Prints `name microseconds` per call: the median of the
 * rounds. argv[1]: a PTX file with a kernel `spin(unsigned microseconds)`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "vgpu/cuda_abi.h"

#define ROUNDS 9

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#define CHECK(call)                                                                           \
    do {                                                                                      \
        CUresult result = (call);                                                             \
        if (result != CUDA_SUCCESS) return fprintf(stderr, "%s: %d\n", #call, result), 1;      \
    } while (0)

#define TIME(name, calls, body, finish)                                       \
    do {                                                                      \
        double each[ROUNDS];                                                  \
        for (int round = 0; round < ROUNDS; ++round) {                        \
            double start = now();                                             \
            for (long i = 0; i < (calls); ++i) { body; }                      \
            finish;                                                           \
            each[round] = (now() - start) / (double)(calls);                  \
        }                                                                     \
        qsort(each, ROUNDS, sizeof each[0], ascending);                       \
        printf("%s\t%.4f\n", name, each[ROUNDS / 2]);                         \
    } while (0)

#define SYMBOL(name, result, ...) result(*name) __VA_ARGS__ = (result(*) __VA_ARGS__)dlsym(cuda, #name)

int main(int argc, char **argv) {
    static char text[1 << 20];
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!file || !fread(text, 1, sizeof text - 1, file)) return fprintf(stderr, "usage: shim_on_gpu KERNELS.ptx\n"), 2;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda) return fprintf(stderr, "%s\n", dlerror()), 1;
    SYMBOL(cuInit, CUresult, (unsigned));
    SYMBOL(cuDevicePrimaryCtxRetain, CUresult, (CUcontext *, CUdevice));
    SYMBOL(cuCtxSetCurrent, CUresult, (CUcontext));
    SYMBOL(cuCtxSynchronize, CUresult, (void));
    SYMBOL(cuModuleLoadData, CUresult, (CUmodule *, const void *));
    SYMBOL(cuModuleGetFunction, CUresult, (CUfunction *, CUmodule, const char *));
    SYMBOL(cuLaunchKernel, CUresult,
           (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **));
    SYMBOL(cuMemAlloc_v2, CUresult, (CUdeviceptr *, size_t));
    SYMBOL(cuMemFree_v2, CUresult, (CUdeviceptr));
    SYMBOL(cuMemGetInfo_v2, CUresult, (size_t *, size_t *));
    CUcontext context;
    CUmodule module;
    CUfunction spin;
    CUdeviceptr pointer;
    size_t available, total;
    unsigned microseconds = 0;
    void *arguments[] = {&microseconds};
    double start = now();
    CHECK(cuInit(0));
    printf("cuInit\t%.1f\n", now() - start);
    start = now();
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    printf("first context\t%.1f\n", now() - start);
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&spin, module, "spin"));
    CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, 0, arguments, NULL));
    CHECK(cuCtxSynchronize());
    TIME("launch of an empty kernel", 20000, cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, 0, arguments, NULL), cuCtxSynchronize());
    static const struct {
        const char *name;
        size_t bytes;
        long calls;
    } sizes[] = {{"alloc+free of 256 B", 256, 1000}, {"alloc+free of 1 MiB", 1 << 20, 500}, {"alloc+free of 20 MiB", 20 << 20, 300},
                 {"alloc+free of 1 GiB", 1 << 30, 20}};
    for (unsigned s = 0; s < sizeof sizes / sizeof sizes[0]; ++s)
        TIME(sizes[s].name, sizes[s].calls, CHECK(cuMemAlloc_v2(&pointer, sizes[s].bytes)); CHECK(cuMemFree_v2(pointer)), (void)0);
    TIME("cuMemGetInfo", 2000, cuMemGetInfo_v2(&available, &total), (void)0);
    return 0;
}
