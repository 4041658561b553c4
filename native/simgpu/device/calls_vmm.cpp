// Virtual memory management: reservations, physical handles, mappings, access, and handles that cross processes.
#include <unistd.h>

#include <algorithm>

#include "call.h"
#include "vgpu/cuda_abi.h"

namespace vgpu::sim {
namespace {

using Mappings = std::map<uint64_t, Mapping>;

bool granular(uint64_t value) { return value % kGranularity == 0; }

// The VMM mappings that cover [address, address + size) exactly, as [first, last); false when they do not.
bool whole_mappings(Mappings& mappings, uint64_t address, uint64_t size, Mappings::iterator& first, Mappings::iterator& last) {
  first = last = mappings.find(address);
  for (uint64_t covered = 0; covered < size; ++last) {
    if (last == mappings.end() || last->first != address + covered || last->second.kind != Memory::kMapped) return false;
    covered += last->second.size;
    if (covered > size) return false;
  }
  return size > 0;
}

uint64_t add_handle(Call& call, const std::shared_ptr<Block>& block) {
  for (auto& [id, handle] : call.client->handles) {
    if (handle.block != block) continue;
    handle.references++;
    return id;
  }
  const uint64_t id = call.machine.next_id();
  call.client->handles[id] = {block, 1};
  return id;
}

}  // namespace

int32_t on_Reserve(Call& call, const ReserveRequest& request, ReserveReply& reply) {
  const uint64_t alignment = std::max(request.alignment, kGranularity);
  if (request.size == 0 || !granular(request.size) || (alignment & (alignment - 1))) return CUDA_ERROR_INVALID_VALUE;
  reply.address = call.client->ranges.take(request.size, alignment, request.hint);
  if (reply.address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  call.client->reservations[reply.address] = request.size;
  return CUDA_SUCCESS;
}

int32_t on_ReserveFree(Call& call, const ReserveFreeRequest& request, ReserveFreeReply&) {
  Client& client = *call.client;
  const auto found = client.reservations.find(request.address);
  if (found == client.reservations.end() || found->second != request.size) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = client.space.mappings().lower_bound(request.address);
  if (mapped != client.space.mappings().end() && mapped->first - request.address < request.size) return CUDA_ERROR_INVALID_VALUE;
  client.ranges.give_back(request.address, request.size);
  client.reservations.erase(found);
  return CUDA_SUCCESS;
}

int32_t on_Create(Call& call, const CreateRequest& request, CreateReply& reply) {
  if (request.device >= call.machine.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  if (request.size == 0 || !granular(request.size)) return CUDA_ERROR_INVALID_VALUE;
  Ledger& ledger = call.machine.devices[request.device]->ledger;
  if (request.size > ledger.total) return CUDA_ERROR_OUT_OF_MEMORY;
  auto block = Block::create(ledger, call.client->seats[request.device].ledger, request.device, request.size);
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  block->set_handle_types(request.handle_types);
  reply.handle = add_handle(call, block);
  return CUDA_SUCCESS;
}

int32_t on_Release(Call& call, const ReleaseRequest& request, ReleaseReply&) {
  const auto found = call.client->handles.find(request.handle);
  if (found == call.client->handles.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.references == 0) call.client->handles.erase(found);
  return CUDA_SUCCESS;
}

int32_t on_Map(Call& call, const MapRequest& request, MapReply&) {
  Client& client = *call.client;
  const auto handle = client.handles.find(request.handle);
  if (handle == client.handles.end()) return CUDA_ERROR_INVALID_VALUE;
  // The driver's own rule: "offset must be zero".
  if (request.size == 0 || !granular(request.size) || !granular(request.address) || request.offset != 0) return CUDA_ERROR_INVALID_VALUE;
  if (request.size > handle->second.block->size()) return CUDA_ERROR_INVALID_VALUE;
  auto reservation = client.reservations.upper_bound(request.address);
  if (reservation == client.reservations.begin()) return CUDA_ERROR_INVALID_VALUE;
  --reservation;
  const uint64_t inside = request.address - reservation->first;
  if (inside >= reservation->second || reservation->second - inside < request.size) return CUDA_ERROR_INVALID_VALUE;
  auto& mappings = client.space.mappings();
  const auto next = mappings.lower_bound(request.address);
  if (next != mappings.end() && next->first - request.address < request.size) return CUDA_ERROR_INVALID_VALUE;
  if (client.space.find(request.address) != mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  mappings[request.address] = {request.size, handle->second.block, 0, 0, 0, Memory::kMapped, 0, call.machine.next_id()};
  return CUDA_SUCCESS;
}

int32_t on_Unmap(Call& call, const UnmapRequest& request, UnmapReply&) {
  auto& mappings = call.client->space.mappings();
  Mappings::iterator first, last;
  if (!whole_mappings(mappings, request.address, request.size, first, last)) return CUDA_ERROR_INVALID_VALUE;
  mappings.erase(first, last);
  return CUDA_SUCCESS;
}

int32_t on_SetAccess(Call& call, const SetAccessRequest& request, SetAccessReply&) {
  auto& mappings = call.client->space.mappings();
  Mappings::iterator first, last;
  if (!whole_mappings(mappings, request.address, request.size, first, last)) return CUDA_ERROR_INVALID_VALUE;
  const size_t count = call.payload.size() / sizeof(Access);
  if (count == 0 || call.payload.size() % sizeof(Access)) return CUDA_ERROR_INVALID_VALUE;
  const Access* access = reinterpret_cast<const Access*>(call.payload.data());
  for (size_t i = 0; i < count; i++) {
    if (access[i].device >= call.machine.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
    if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (auto mapping = first; mapping != last; ++mapping) {
    for (size_t i = 0; i < count; i++) {
      const uint32_t bit = uint32_t{1} << access[i].device;
      const bool readable = access[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ;
      const bool writable = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      mapping->second.readable = readable ? mapping->second.readable | bit : mapping->second.readable & ~bit;
      mapping->second.writable = writable ? mapping->second.writable | bit : mapping->second.writable & ~bit;
    }
  }
  return CUDA_SUCCESS;
}

int32_t on_GetAccess(Call& call, const GetAccessRequest& request, GetAccessReply& reply) {
  if (request.device >= call.machine.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  const auto found = call.client->space.find(request.address);
  if (found == call.client->space.mappings().end()) return CUDA_ERROR_INVALID_VALUE;
  const bool readable = found->second.readable >> request.device & 1, writable = found->second.writable >> request.device & 1;
  reply.flags = writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : readable ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

int32_t on_Export(Call& call, const ExportRequest& request, ExportReply&) {
  const auto found = call.client->handles.find(request.handle);
  if (found == call.client->handles.end()) return CUDA_ERROR_INVALID_VALUE;
  if (!(found->second.block->handle_types() & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) return CUDA_ERROR_INVALID_VALUE;
  call.sent = call.machine.exports.add(found->second.block);
  return call.sent < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

int32_t on_Import(Call& call, const ImportRequest&, ImportReply& reply) {
  const auto block = call.machine.exports.find(call.received);
  if (!block) return CUDA_ERROR_INVALID_VALUE;
  reply.handle = add_handle(call, block);
  return CUDA_SUCCESS;
}

int32_t on_HandleOf(Call& call, const HandleOfRequest& request, HandleOfReply& reply) {
  const auto found = call.client->space.find(request.address);
  if (found == call.client->space.mappings().end() || found->second.kind != Memory::kMapped) return CUDA_ERROR_INVALID_VALUE;
  reply.handle = add_handle(call, found->second.block);
  return CUDA_SUCCESS;
}

int32_t on_HandleState(Call& call, const HandleStateRequest& request, HandleStateReply& reply) {
  const auto found = call.client->handles.find(request.handle);
  if (found == call.client->handles.end()) return CUDA_ERROR_INVALID_VALUE;
  reply.size = found->second.block->size();
  reply.device = found->second.block->device();
  reply.handle_types = found->second.block->handle_types();
  return CUDA_SUCCESS;
}

}  // namespace vgpu::sim
