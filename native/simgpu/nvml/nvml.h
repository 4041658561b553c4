// What the files of the simulated NVML share: its exported functions, and what every one of them asks first.
//
// NVML has a connection of its own to the device process, apart from libcuda's, because it works on in a child forked from a program that
// has initialised it. A CUDA driver does not; programs rely on NVML there (they count devices with it before they fork).
#pragma once
#include <cstdint>
#include <vector>

#include "client/channel.h"
#include "vgpu/nvml_abi.h"

#pragma GCC visibility push(default)
extern "C" {
#define VGPU_SIM_NVML(symbol, parameters) nvmlReturn_t symbol parameters;
#include "functions.def"
const char* nvmlErrorString(nvmlReturn_t result);
}
#pragma GCC visibility pop

struct nvmlDevice_st {
  uint32_t index;
};

namespace vgpu::sim {

nvmlReturn_t initialized();  // or UNINITIALIZED

// The machine's devices as the device process described them.
nvmlReturn_t describe(HelloReply& machine);
// The device behind a handle; INVALID_ARGUMENT for what no call here handed out.
nvmlReturn_t describe(nvmlDevice_t handle, DeviceDescription& device);
nvmlDevice_t handle_of(uint32_t index);

nvmlReturn_t exchange(CallId id, const void* request, size_t request_size, void* reply, size_t reply_size, std::vector<char>* payload);

// A call of wire.h about the device behind `handle`.
template <class Request, class Reply>
nvmlReturn_t ask(nvmlDevice_t handle, CallId id, Reply& reply, std::vector<char>* payload = nullptr) {
  DeviceDescription device;
  if (const nvmlReturn_t wrong = describe(handle, device)) return wrong;
  const Request request{handle->index};
  return exchange(id, &request, sizeof request, &reply, sizeof reply, payload);
}

}  // namespace vgpu::sim
