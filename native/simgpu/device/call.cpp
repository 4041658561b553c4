#include "call.h"

#include "vgpu/cuda_abi.h"

namespace vgpu::sim {

int32_t Call::submit(const std::shared_ptr<Stream>& stream, uint32_t device, std::shared_ptr<Operation> operation) {
  const std::shared_ptr<Order> order = stream->context;
  while (stream->pending.size() >= kQueueLimit && !order->ended) machine.finished.wait(lock);
  if (order->ended) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (order->error) return order->error;
  Device& target = *machine.devices[device];
  target.timeline.submit(*stream, std::move(operation), monotonic_now());
  target.work.notify_all();
  return CUDA_SUCCESS;
}

int32_t Call::wait(const Operation& operation) {
  while (!operation.finished && !client->gone) machine.finished.wait(lock);
  return client->gone ? int32_t(CUDA_ERROR_DEINITIALIZED) : operation.status;
}

int32_t Call::wait_for(const std::shared_ptr<Order>& order, bool blocking_only) {
  // What other threads submit meanwhile is not waited for.
  std::vector<std::shared_ptr<Operation>> last;
  for (const auto& stream : order->streams)
    if (!stream->pending.empty() && (stream->blocking || !blocking_only)) last.push_back(stream->pending.back());
  for (const auto& operation : last) wait(*operation);
  return order->error;
}

int32_t Call::wait_for(const std::shared_ptr<Stream>& stream) {
  const std::shared_ptr<Order> order = stream->context;
  if (stream == order->legacy) return wait_for(order, true);  // its next operation would be behind them all
  if (!stream->pending.empty()) wait(*std::shared_ptr<Operation>(stream->pending.back()));
  return order->error;
}

std::shared_ptr<Stream> Call::stream(uint64_t number, uint32_t& device) {
  if (number == 0 || number == kLegacyStream || number == kPerThreadStream) {
    if (!context) return nullptr;
    device = context->device;
    return number == kPerThreadStream ? context->per_thread : context->order->legacy;
  }
  const auto found = client->streams.find(number);
  if (found == client->streams.end()) return nullptr;
  device = client->contexts.at(found->second.context).device;
  return found->second.stream;
}

}  // namespace vgpu::sim
