#include "machine.h"

#include <algorithm>

#include "vgpu/cuda_abi.h"

namespace vgpu::sim {
namespace {

// FNV-1a over the name, stirred: the same machine has the same devices after a restart.
uint64_t digest(const std::string& text, uint64_t seed) {
  uint64_t hash = 14695981039346656037u ^ seed;
  for (const unsigned char byte : text) hash = (hash ^ byte) * 1099511628211u;
  hash ^= hash >> 31;
  hash *= 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

std::array<uint8_t, 16> device_uuid(const std::string& name, uint32_t index) {
  std::array<uint8_t, 16> uuid;
  const std::string text = name + "#" + std::to_string(index);
  for (int half = 0; half < 2; half++) {
    const uint64_t bits = digest(text, uint64_t(half));
    for (int i = 0; i < 8; i++) uuid[size_t(half * 8 + i)] = uint8_t(bits >> (8 * i));
  }
  uuid[6] = uint8_t((uuid[6] & 0x0f) | 0x80);  // RFC 9562: version 8, made by the vendor's own rule
  uuid[8] = uint8_t((uuid[8] & 0x3f) | 0x80);
  return uuid;
}

}  // namespace

Machine::Machine(const Spec& spec, const std::string& name) {
  for (uint32_t index = 0; index < spec.memory.size(); index++) {
    auto device = std::make_unique<Device>();
    device->index = index;
    device->uuid = device_uuid(name, index);
    device->context_overhead = spec.context_overhead;
    device->ledger.total = spec.memory[index];
    devices.push_back(std::move(device));
  }
}

std::shared_ptr<Client> Machine::enter(pid_t pid, uint32_t program) {
  const auto found = clients.find(pid);
  if (found != clients.end()) {
    if (found->second->program == program) return found->second;
    retire(std::shared_ptr<Client>(found->second));
  }
  auto client = std::make_shared<Client>(pid, program, devices.size());
  for (size_t i = 0; i < devices.size(); i++) devices[i]->timeline.join(client->seats[i].lane);
  clients[pid] = client;
  return client;
}

void Machine::retire(const std::shared_ptr<Client>& client) {
  if (client->gone) return;
  client->gone = true;
  clients.erase(client->pid);
  for (size_t i = 0; i < devices.size(); i++) devices[i]->timeline.leave(client->seats[i].lane.get());

  std::vector<std::weak_ptr<Block>> blocks;
  for (const auto& [address, mapping] : client->space.mappings()) blocks.push_back(mapping.block);
  for (const auto& [id, handle] : client->handles) blocks.push_back(handle.block);
  client->space.mappings().clear();
  client->handles.clear();
  client->events.clear();
  client->streams.clear();
  for (auto& [id, context] : client->contexts) context.order->end();
  client->contexts.clear();
  for (Seat& seat : client->seats) seat.overhead.reset();

  // What another process imported lives on, and is that process's from now on.
  for (const auto& weak : blocks) {
    const auto block = weak.lock();
    if (!block || !block->charged_to(client->seats[block->device()].ledger.get())) continue;
    for (const auto& [pid, other] : clients) {
      const auto holds = [&](const auto& entry) { return entry.second.block == block; };
      const auto& mappings = other->space.mappings();
      if (std::any_of(other->handles.begin(), other->handles.end(), holds) || std::any_of(mappings.begin(), mappings.end(), holds)) {
        block->charge_to(other->seats[block->device()].ledger);
        break;
      }
    }
  }
  wake();
}

void Machine::wake() {
  finished.notify_all();
  for (const auto& device : devices) device->work.notify_all();
}

int32_t Machine::create_context(Client& client, uint32_t index, uint32_t flags, bool primary, uint64_t& id) {
  Device& device = *devices[index];
  Seat& seat = client.seats[index];
  if (!seat.overhead) {
    auto charge = Charge::take(device.ledger, seat.ledger, device.context_overhead);
    if (!charge) return CUDA_ERROR_OUT_OF_MEMORY;
    seat.overhead.emplace(std::move(*charge));
  }
  id = next_id();
  Context& context = client.contexts[id];
  context.id = id;
  context.device = index;
  context.flags = flags;
  context.primary = primary;
  open_streams(client, context);
  return CUDA_SUCCESS;
}

void Machine::open_streams(Client& client, Context& context) {
  context.order = std::make_shared<Order>();
  for (auto* stream : {&context.order->legacy, &context.per_thread}) {
    *stream = std::make_shared<Stream>();
    (*stream)->context = context.order;
    context.order->streams.push_back(*stream);
  }
  client.seats[context.device].lane->contexts.push_back(context.order);
}

void Machine::free(Client& client, std::map<uint64_t, Mapping>::iterator found) {
  const uint64_t address = found->first;
  const Mapping mapping = std::move(found->second);
  client.space.mappings().erase(found);
  if (mapping.kind == Memory::kPool) client.seats[mapping.block->device()].pool_used -= mapping.size;
  if (mapping.kind == Memory::kDevice || mapping.kind == Memory::kPool) client.ranges.give_back(address, mapping.size);
}

void Machine::clear_context(Client& client, Context& context) {
  const auto drop = [&](auto& entries) {
    for (auto entry = entries.begin(); entry != entries.end();)
      entry = entry->second.context == context.id ? entries.erase(entry) : std::next(entry);
  };
  auto& orders = client.seats[context.device].lane->contexts;
  orders.erase(std::remove(orders.begin(), orders.end(), context.order), orders.end());
  devices[context.device]->timeline.drop(*context.order, CUDA_ERROR_CONTEXT_IS_DESTROYED, monotonic_now());
  context.order->end();
  drop(client.streams);
  drop(client.events);
  auto& mappings = client.space.mappings();
  for (auto mapping = mappings.begin(); mapping != mappings.end();) {
    const auto next = std::next(mapping);
    if (mapping->second.context == context.id) free(client, mapping);
    mapping = next;
  }
  wake();
}

void Machine::destroy_context(Client& client, uint64_t id) {
  Context& context = client.contexts.at(id);
  const uint32_t device = context.device;
  clear_context(client, context);
  client.contexts.erase(id);
  const auto remains = [&](const auto& entry) { return entry.second.device == device; };
  if (std::none_of(client.contexts.begin(), client.contexts.end(), remains)) client.seats[device].overhead.reset();
}

void Machine::reset_context(Client& client, Context& context) {
  clear_context(client, context);
  open_streams(client, context);
}

void Machine::run_engine(Device& device) {
  std::unique_lock lock(mutex);
  for (;;) {
    const auto next = device.timeline.advance(monotonic_now());
    // Another device may wait for what finished here.
    if (device.timeline.take_finished()) wake();
    if (next) device.work.wait_until(lock, *next);
    else device.work.wait(lock);
  }
}

}  // namespace vgpu::sim
