// Allocations: device, pool, pinned and managed memory.
#include <unistd.h>

#include <algorithm>

#include "call.h"
#include "vgpu/cuda_abi.h"

namespace vgpu::sim {
namespace {

constexpr uint64_t kAlignment = 512;
constexpr uint64_t kEveryDevice = UINT32_MAX;

uint64_t rounded(uint64_t size, uint64_t to) { return (size + to - 1) / to * to; }

int32_t allocate(Call& call, uint64_t size, Memory kind, uint32_t device_index, uint64_t context, uint64_t& address) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  Device& device = *call.machine.devices[device_index];
  Client& client = *call.client;
  if (size > device.ledger.total) return CUDA_ERROR_OUT_OF_MEMORY;
  size = rounded(size, kAlignment);
  auto block = Block::create(device.ledger, client.seats[device_index].ledger, device_index, size);
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  address = client.ranges.take(size, size >= kGranularity ? kGranularity : kAlignment);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint32_t access = uint32_t{1} << device_index;
  client.space.mappings()[address] = {size, std::move(block), 0, access, access, kind, context, call.machine.next_id()};
  return CUDA_SUCCESS;
}

}  // namespace

int32_t on_Allocate(Call& call, const AllocateRequest& request, AllocateReply& reply) {
  if (!call.context) return CUDA_ERROR_INVALID_CONTEXT;
  return allocate(call, request.size, Memory::kDevice, call.context->device, call.context->id, reply.address);
}

int32_t on_Free(Call& call, const FreeRequest& request, FreeReply&) {
  auto& mappings = call.client->space.mappings();
  auto found = mappings.find(request.address);
  if (found == mappings.end() || (found->second.kind != Memory::kDevice && found->second.kind != Memory::kPool))
    return CUDA_ERROR_INVALID_VALUE;
  // As the driver does: what may still use it comes first.
  const auto owner = call.client->contexts.find(found->second.context);
  const uint64_t id = found->second.id;
  if (owner != call.client->contexts.end()) {
    const int32_t status = call.wait_for(std::shared_ptr<Order>(owner->second.order));
    if (status != CUDA_SUCCESS) return status;
  }
  found = mappings.find(request.address);
  if (found == mappings.end() || found->second.id != id) return CUDA_ERROR_INVALID_VALUE;  // another thread freed it meanwhile
  call.machine.free(*call.client, found);
  return CUDA_SUCCESS;
}

int32_t on_AllocateAsync(Call& call, const AllocateAsyncRequest& request, AllocateAsyncReply& reply) {
  uint32_t device = 0;
  const auto stream = call.stream(request.stream, device);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  const auto order = stream->context;
  const auto allocate_now = [&] {
    for (const auto& [id, context] : call.client->contexts)
      if (context.order == order) return allocate(call, request.size, Memory::kPool, device, id, reply.address);
    return int32_t(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  };
  int32_t status = allocate_now();
  if (status == CUDA_ERROR_OUT_OF_MEMORY) {
    // The pool has what is freed by then.
    if (const int32_t error = call.wait_for(order)) return error;
    status = allocate_now();
  }
  if (status != CUDA_SUCCESS) return status;
  Seat& seat = call.client->seats[device];
  seat.pool_used += call.client->space.mappings().at(reply.address).size;
  seat.pool_high = std::max(seat.pool_high, seat.pool_used);
  return CUDA_SUCCESS;
}

int32_t on_FreeAsync(Call& call, const FreeAsyncRequest& request, FreeAsyncReply&) {
  uint32_t device = 0;
  const auto stream = call.stream(request.stream, device);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  const auto& mappings = call.client->space.mappings();
  const auto found = mappings.find(request.address);
  if (found == mappings.end() || (found->second.kind != Memory::kDevice && found->second.kind != Memory::kPool))
    return CUDA_ERROR_INVALID_VALUE;
  auto operation = std::make_shared<Operation>();
  operation->effect = [&machine = call.machine, client = call.client.get(), address = request.address, id = found->second.id](const Operation&) {
    const auto mapping = client->space.mappings().find(address);
    if (mapping == client->space.mappings().end() || mapping->second.id != id) return int32_t(CUDA_ERROR_ILLEGAL_ADDRESS);
    machine.free(*client, mapping);
    return int32_t(CUDA_SUCCESS);
  };
  return call.submit(stream, device, std::move(operation));
}

int32_t on_HostAlloc(Call& call, const HostAllocRequest& request, HostAllocReply&) {
  if (!call.context) return CUDA_ERROR_INVALID_CONTEXT;
  if (request.size == 0 || request.address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (request.kind != Memory::kHost && request.kind != Memory::kManaged) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t size = rounded(request.size, uint64_t(sysconf(_SC_PAGESIZE)));
  auto& mappings = call.client->space.mappings();
  const auto next = mappings.lower_bound(request.address);
  if (next != mappings.end() && next->first - request.address < size) return CUDA_ERROR_INVALID_VALUE;
  if (call.client->space.find(request.address) != mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t device = call.context->device;
  std::optional<Charge> charge;
  if (request.kind == Memory::kManaged) {
    if (size > call.machine.devices[device]->ledger.total) return CUDA_ERROR_OUT_OF_MEMORY;
    if (auto taken = Charge::take(call.machine.devices[device]->ledger, call.client->seats[device].ledger, size))
      charge.emplace(std::move(*taken));
    else
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  call.sent = shareable_memory("vgpu-simulated-host-memory", size);
  if (call.sent < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  auto block = Block::create_shared(std::move(charge), device, size, call.sent);
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  mappings[request.address] = {size, std::move(block), 0, kEveryDevice, kEveryDevice, request.kind, call.context->id,
                               call.machine.next_id()};
  return CUDA_SUCCESS;
}

int32_t on_HostFree(Call& call, const HostFreeRequest& request, HostFreeReply&) {
  auto& mappings = call.client->space.mappings();
  auto found = mappings.find(request.address);
  if (found == mappings.end() || (found->second.kind != Memory::kHost && found->second.kind != Memory::kManaged))
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t id = found->second.id;
  const auto owner = call.client->contexts.find(found->second.context);
  if (owner != call.client->contexts.end()) {
    const int32_t status = call.wait_for(std::shared_ptr<Order>(owner->second.order));
    if (status != CUDA_SUCCESS) return status;
  }
  found = mappings.find(request.address);
  if (found == mappings.end() || found->second.id != id) return CUDA_ERROR_INVALID_VALUE;
  call.machine.free(*call.client, found);
  return CUDA_SUCCESS;
}

int32_t on_AddressState(Call& call, const AddressStateRequest& request, AddressStateReply& reply) {
  auto& space = call.client->space;
  const auto found = space.find(request.address);
  if (found == space.mappings().end()) return CUDA_ERROR_INVALID_VALUE;
  reply.base = found->first;
  reply.size = found->second.size;
  reply.context = found->second.context;
  reply.id = found->second.id;
  reply.kind = found->second.kind;
  reply.device = found->second.block->device();
  return CUDA_SUCCESS;
}

int32_t on_PoolState(Call& call, const PoolStateRequest& request, PoolStateReply& reply) {
  if (request.device >= call.machine.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  reply.used = call.client->seats[request.device].pool_used;
  reply.high = call.client->seats[request.device].pool_high;
  return CUDA_SUCCESS;
}

}  // namespace vgpu::sim
