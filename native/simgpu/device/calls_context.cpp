// Hello, what NVML asks, and contexts.
#include <algorithm>
#include <cstring>
#include <utility>

#include "call.h"
#include "vgpu/cuda_abi.h"

namespace vgpu::sim {

int32_t on_Hello(Call& call, const HelloRequest&, HelloReply& reply) {
  reply.device_count = uint32_t(call.machine.devices.size());
  for (size_t i = 0; i < call.machine.devices.size(); i++) {
    const Device& device = *call.machine.devices[i];
    std::memcpy(reply.device[i].uuid, device.uuid.data(), device.uuid.size());
    reply.device[i].total = device.ledger.total;
    reply.device[i].context_overhead = device.context_overhead;
  }
  return CUDA_SUCCESS;
}

int32_t on_DeviceState(Call& call, const DeviceStateRequest& request, DeviceStateReply& reply) {
  if (request.device >= call.machine.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  const Device& device = *call.machine.devices[request.device];
  const uint64_t now = monotonic_now();
  reply.used = device.ledger.used;
  reply.busy = device.timeline.busy();
  reply.utilization = device.timeline.utilization(now);
  reply.memory_activity = device.timeline.memory_activity(now);
  return CUDA_SUCCESS;
}

int32_t on_Processes(Call& call, const ProcessesRequest& request, ProcessesReply& reply) {
  if (request.device >= call.machine.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  const uint64_t now = monotonic_now();
  for (const auto& [pid, client] : call.machine.clients) {
    const Seat& seat = client->seats[request.device];
    if (!seat.overhead && seat.ledger->used == 0) continue;
    const Lane& lane = *seat.lane;
    const ProcessState state{uint32_t(pid), lane.window.per_cent(now), lane.copy_window.per_cent(now), 0, seat.ledger->used, lane.busy};
    const char* bytes = reinterpret_cast<const char*>(&state);
    call.answer.insert(call.answer.end(), bytes, bytes + sizeof state);
    reply.count++;
  }
  return CUDA_SUCCESS;
}

int32_t on_PrimaryRetain(Call& call, const PrimaryRetainRequest& request, PrimaryRetainReply& reply) {
  if (request.device >= call.machine.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  Seat& seat = call.client->seats[request.device];
  if (seat.primary == 0) {
    const int32_t status = call.machine.create_context(*call.client, request.device, seat.primary_flags, true, seat.primary);
    if (status != CUDA_SUCCESS) return status;
  }
  seat.primary_retained++;
  reply.context = seat.primary;
  return CUDA_SUCCESS;
}

int32_t on_PrimaryRelease(Call& call, const PrimaryReleaseRequest& request, PrimaryReleaseReply&) {
  if (request.device >= call.machine.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  Seat& seat = call.client->seats[request.device];
  if (seat.primary == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--seat.primary_retained == 0) call.machine.destroy_context(*call.client, std::exchange(seat.primary, 0));
  return CUDA_SUCCESS;
}

int32_t on_PrimaryReset(Call& call, const PrimaryResetRequest& request, PrimaryResetReply&) {
  if (request.device >= call.machine.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  const Seat& seat = call.client->seats[request.device];
  if (seat.primary != 0) call.machine.reset_context(*call.client, call.client->contexts.at(seat.primary));
  return CUDA_SUCCESS;
}

int32_t on_PrimaryState(Call& call, const PrimaryStateRequest& request, PrimaryStateReply& reply) {
  if (request.device >= call.machine.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  const Seat& seat = call.client->seats[request.device];
  reply.flags = seat.primary_flags;
  reply.active = seat.primary != 0;
  return CUDA_SUCCESS;
}

int32_t on_PrimarySetFlags(Call& call, const PrimarySetFlagsRequest& request, PrimarySetFlagsReply&) {
  if (request.device >= call.machine.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  Seat& seat = call.client->seats[request.device];
  seat.primary_flags = request.flags;
  if (seat.primary != 0) call.client->contexts.at(seat.primary).flags = request.flags;
  return CUDA_SUCCESS;
}

int32_t on_ContextCreate(Call& call, const ContextCreateRequest& request, ContextCreateReply& reply) {
  if (request.device >= call.machine.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  return call.machine.create_context(*call.client, request.device, request.flags, false, reply.context);
}

int32_t on_ContextDestroy(Call& call, const ContextDestroyRequest& request, ContextDestroyReply&) {
  const auto found = call.client->contexts.find(request.context);
  if (found == call.client->contexts.end() || found->second.primary) return CUDA_ERROR_INVALID_CONTEXT;
  call.machine.destroy_context(*call.client, request.context);
  return CUDA_SUCCESS;
}

int32_t on_ContextState(Call& call, const ContextStateRequest& request, ContextStateReply& reply) {
  const auto found = call.client->contexts.find(request.context);
  if (found == call.client->contexts.end()) return CUDA_ERROR_INVALID_CONTEXT;
  reply.device = found->second.device;
  reply.flags = found->second.flags;
  reply.primary = found->second.primary;
  return CUDA_SUCCESS;
}

int32_t on_ContextSynchronize(Call& call, const ContextSynchronizeRequest&, ContextSynchronizeReply&) {
  if (!call.context) return CUDA_ERROR_INVALID_CONTEXT;
  return call.wait_for(std::shared_ptr<Order>(call.context->order));
}

}  // namespace vgpu::sim
