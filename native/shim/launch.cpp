/* Launches: counted in the own slot (activity, not time), otherwise the driver's. */
#include "tenant.h"

namespace vgpu {
namespace {

/* With one device there is no question which; asking the driver costs more than the count. */
inline void count_launch() {
    Tenant *t = managed();
    if (!t) return;
    int part = t->ordinals.load(std::memory_order_acquire) == 1 ? t->part_of[0].load(std::memory_order_relaxed) : current_part(*t);
    if (part != UNKNOWN_PART) __atomic_fetch_add(&t->page->process[t->slot].device[part].launches, 1, __ATOMIC_RELAXED);
}

}  // namespace
}  // namespace vgpu

using namespace vgpu;

CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
                        unsigned int bz, unsigned int shared, CUstream stream, void **params, void **extra) {
    count_launch();
    return VGPU_REAL(cuLaunchKernel)(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
                             unsigned int bz, unsigned int shared, CUstream stream, void **params, void **extra) {
    count_launch();
    return VGPU_REAL(cuLaunchKernel_ptsz)(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    count_launch();
    return VGPU_REAL(cuLaunchKernelEx)(config, function, params, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    count_launch();
    return VGPU_REAL(cuLaunchKernelEx_ptsz)(config, function, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
                                   unsigned int bz, unsigned int shared, CUstream stream, void **params) {
    count_launch();
    return VGPU_REAL(cuLaunchCooperativeKernel)(function, gx, gy, gz, bx, by, bz, shared, stream, params);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                                        unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params) {
    count_launch();
    return VGPU_REAL(cuLaunchCooperativeKernel_ptsz)(function, gx, gy, gz, bx, by, bz, shared, stream, params);
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    count_launch();
    return VGPU_REAL(cuGraphLaunch)(graph, stream);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream) {
    count_launch();
    return VGPU_REAL(cuGraphLaunch_ptsz)(graph, stream);
}
