#include <stdio.h>
#include <string.h>

#include "module.h"
#include "streams.h"

namespace vgpu::sim {
namespace {

// The ways in which cuLaunchKernel takes parameters; CU_LAUNCH_PARAM_* of the driver API.
const void* const kEnd = nullptr;
void* const kBufferPointer = reinterpret_cast<void*>(1);
void* const kBufferSize = reinterpret_cast<void*>(2);

CUresult parameters_of(const Entry& entry, void** parameters, void** extra, std::vector<char>& packed) {
  packed.assign(entry.parameter_bytes(), 0);
  if (parameters && extra) return CUDA_ERROR_INVALID_VALUE;
  if (extra) {
    const void* buffer = nullptr;
    size_t size = 0;
    for (; *extra != kEnd; extra += 2) {
      if (*extra == kBufferPointer) buffer = extra[1];
      else if (*extra == kBufferSize) size = *static_cast<const size_t*>(extra[1]);
      else return CUDA_ERROR_INVALID_VALUE;
    }
    if (size < packed.size() || (!buffer && size)) return CUDA_ERROR_INVALID_VALUE;
    if (buffer) memcpy(packed.data(), buffer, packed.size());
    return CUDA_SUCCESS;
  }
  if (!parameters && !entry.parameters.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < entry.parameters.size(); ++i) {
    if (!parameters[i]) return CUDA_ERROR_INVALID_VALUE;
    memcpy(packed.data() + entry.parameters[i].offset, parameters[i], entry.parameters[i].size);
  }
  return CUDA_SUCCESS;
}

// Attributes that say how a kernel shall run and not what it does.
bool harmless(CUlaunchAttributeID attribute) {
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return true;
    default: return false;
  }
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                        unsigned int block_y, unsigned int block_z, unsigned int, CUstream stream, void** parameters, void** extra) {
  StreamTarget target;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  const auto found = find_function(function);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z) return CUDA_ERROR_INVALID_VALUE;
  if (block_x > 1024 || block_y > 1024 || block_z > 64 || block_x * block_y * block_z > kMaxThreadsPerBlock)
    return CUDA_ERROR_INVALID_VALUE;
  if (grid_x > 0x7fffffff || grid_y > 65535 || grid_z > 65535) return CUDA_ERROR_INVALID_VALUE;
  std::vector<char> packed;
  if (const CUresult wrong = parameters_of(found->entry, parameters, extra, packed)) return wrong;
  if (found->kernel == Kernel::kUnknown) {
    fprintf(stderr,
            "simulated GPU: kernel \"%s\" cannot run: code is not interpreted; the kernels known by name and parameters are those of "
            "examples/demo_kernels.cu (fill, saxpy, add, scale, spin)\n",
            found->entry.name.c_str());
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const LaunchRequest request{found->kernel, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, target.stream};
  LaunchReply reply;
  return result(call(CallId::kLaunch, target.context, request, reply, Bytes{packed.data(), packed.size()}));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  if (!config || (config->numAttrs && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (!harmless(config->attrs[i].id)) return CUDA_ERROR_NOT_SUPPORTED;
  return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                        config->blockDimZ, config->sharedMemBytes, config->hStream, parameters, extra);
}
