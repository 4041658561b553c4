/* Times driver calls in a loop, as a framework makes them (function pointers from dlsym). Prints nanoseconds per call:
 *   launch N, alloc+free N, info N; the best of several rounds, since noise only adds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "vgpu/cuda_abi.h"

#define VGPU_HOOK(library, name, result, ...) typedef result name##_type __VA_ARGS__;
#define VGPU_FORWARD(library, name)
#include "vgpu/nvml_abi.h"
#include "vgpu/hooks.def"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

#define TIME(name, calls, body)                                     \
    do {                                                            \
        double best = 1e18;                                         \
        for (int round = 0; round < 15; ++round) {                  \
            double start = now();                                   \
            for (long i = 0; i < (calls); ++i) body;                \
            double each = (now() - start) / (double)(calls);        \
            if (each < best) best = each;                           \
        }                                                           \
        printf("%s %.1f\n", name, best);                            \
    } while (0)

int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda) return fprintf(stderr, "%s\n", dlerror()), 1;
    cuInit_type *init = (cuInit_type *)dlsym(cuda, "cuInit");
    cuCtxCreate_v2_type *create = (cuCtxCreate_v2_type *)dlsym(cuda, "cuCtxCreate_v2");
    cuLaunchKernel_type *launch = (cuLaunchKernel_type *)dlsym(cuda, "cuLaunchKernel");
    cuMemAlloc_v2_type *alloc = (cuMemAlloc_v2_type *)dlsym(cuda, "cuMemAlloc_v2");
    cuMemFree_v2_type *release = (cuMemFree_v2_type *)dlsym(cuda, "cuMemFree_v2");
    cuMemGetInfo_v2_type *info = (cuMemGetInfo_v2_type *)dlsym(cuda, "cuMemGetInfo_v2");
    CUresult (*version)(int *) = (CUresult(*)(int *))dlsym(cuda, "cuDriverGetVersion");
    CUcontext context;
    CUdeviceptr pointer;
    size_t available, total;
    int v;
    double start = now();
    if (init(0) != CUDA_SUCCESS) return fprintf(stderr, "cuInit failed\n"), 1;
    printf("cuInit %.1f\n", now() - start);
    if (create(&context, 0, 0) != CUDA_SUCCESS) return fprintf(stderr, "no context\n"), 1;
    TIME("forwarded", 1000000, version(&v));
    TIME("launch", 1000000, launch(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
    TIME("alloc+free", 200000, (alloc(&pointer, 4096), release(pointer)));
    TIME("info", 200000, info(&available, &total));
    return 0;
}
