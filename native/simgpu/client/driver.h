// What the files of the simulated driver share: its exported functions, and what every one of them asks first.
#pragma once
#include <cstdint>

#include "channel.h"
#include "identity.h"
#include "vgpu/cuda_abi.h"

#pragma GCC visibility push(default)
extern "C" {
#define VGPU_SIM_FUNCTION(symbol, name, since, parameters) CUresult symbol parameters;
#define VGPU_SIM_STREAM(symbol, suffix, name, since, parameters, arguments) \
  CUresult symbol parameters;                                               \
  CUresult symbol##suffix parameters;
#include "functions.def"
}
#pragma GCC visibility pop

namespace vgpu::sim {

// Of a device and its multiprocessors, in threads, blocks and bytes.
constexpr int kMultiprocessors = 64, kWarp = 32;
constexpr unsigned kMaxThreadsPerBlock = 1024;
constexpr int kThreadsPerMultiprocessor = 2048, kBlocksPerMultiprocessor = 32;
constexpr int kSharedPerMultiprocessor = 228 << 10, kSharedPerBlock = 48 << 10, kSharedPerBlockOptIn = 227 << 10, kSharedReserved = 1 << 10;

// User space ends here, so that an address tells which side it is on.
constexpr uint64_t kDeviceAddresses = uint64_t{1} << 47;
inline bool is_device_address(uint64_t address) { return address >= kDeviceAddresses; }

inline uint64_t number(const void* handle) { return reinterpret_cast<uint64_t>(handle); }
template <class Handle>
Handle handle(uint64_t number) {
  return reinterpret_cast<Handle>(number);
}

// The device process's answer as the driver's: a device process that went away is a device that went away.
CUresult result(int32_t status);

// NOT_INITIALIZED before cuInit and in a child forked after it.
CUresult initialized();

// As `initialized`, and the current context of this thread, or INVALID_CONTEXT.
CUresult current(uint64_t& context);

// A call in the current context.
template <class Request, class Reply, class... Rest>
CUresult ask(CallId id, const Request& request, Reply& reply, Rest&&... rest) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  return result(call(id, context, request, reply, std::forward<Rest>(rest)...));
}
template <class Request>
CUresult ask(CallId id, const Request& request) {
  Nothing nothing;
  return ask(id, request, nothing);
}

// A call that needs no context.
template <class Request, class Reply, class... Rest>
CUresult ask_anywhere(CallId id, const Request& request, Reply& reply, Rest&&... rest) {
  if (const CUresult wrong = initialized()) return wrong;
  return result(call(id, 0, request, reply, std::forward<Rest>(rest)...));
}
template <class Request>
CUresult ask_anywhere(CallId id, const Request& request) {
  Nothing nothing;
  return ask_anywhere(id, request, nothing);
}

// A device as the program numbers it (CUDA_VISIBLE_DEVICES) as one of the device process's; or INVALID_DEVICE, NOT_INITIALIZED.
CUresult device_index(CUdevice device, uint32_t& index);
CUdevice device_ordinal(uint32_t index);  // the way back; -1 for a device that the program does not see
int device_count();
const DeviceDescription& describe(uint32_t index);

}  // namespace vgpu::sim
