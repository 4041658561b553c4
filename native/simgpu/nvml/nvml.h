// What the files of the simulated NVML share: its exported functions, and what every one of them asks first.
#pragma once
#include <cstdint>

#include "client/channel.h"
#include "vgpu/nvml_abi.h"

#pragma GCC visibility push(default)
extern "C" {
#define VGPU_SIM_NVML(symbol, parameters) nvmlReturn_t symbol parameters;
#include "functions.def"
const char* nvmlErrorString(nvmlReturn_t result);
}
#pragma GCC visibility pop

namespace vgpu::sim {

nvmlReturn_t initialized();  // UNINITIALIZED before nvmlInit, after nvmlShutdown and in a child forked between them

// A handle as the device's index, which is the handle's value less one; UNINITIALIZED, INVALID_ARGUMENT.
nvmlReturn_t device_index(nvmlDevice_t device, uint32_t& index);
inline nvmlDevice_t device_handle(uint32_t index) { return reinterpret_cast<nvmlDevice_t>(uint64_t{index} + 1); }

nvmlReturn_t result(int32_t status);
nvmlReturn_t put_text(const char* text, char* to, unsigned length);  // INSUFFICIENT_SIZE where it does not fit

}  // namespace vgpu::sim
