// Streams, events, launches, host functions.
#include <algorithm>

#include "call.h"
#include "kernels.h"
#include "vgpu/cuda_abi.h"

namespace vgpu::sim {

int32_t on_StreamCreate(Call& call, const StreamCreateRequest& request, StreamCreateReply& reply) {
  if (!call.context) return CUDA_ERROR_INVALID_CONTEXT;
  if (request.flags & ~uint32_t(CU_STREAM_NON_BLOCKING)) return CUDA_ERROR_INVALID_VALUE;
  auto stream = std::make_shared<Stream>();
  stream->context = call.context->order;
  stream->blocking = !(request.flags & CU_STREAM_NON_BLOCKING);
  call.context->order->streams.push_back(stream);
  reply.stream = call.machine.next_id();
  call.client->streams[reply.stream] = {call.context->id, request.flags, request.priority, std::move(stream)};
  return CUDA_SUCCESS;
}

int32_t on_StreamDestroy(Call& call, const StreamDestroyRequest& request, StreamDestroyReply&) {
  const auto found = call.client->streams.find(request.stream);
  if (found == call.client->streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  const auto stream = found->second.stream;
  call.client->streams.erase(found);
  stream->destroyed = true;
  auto& streams = stream->context->streams;
  if (stream->pending.empty()) streams.erase(std::remove(streams.begin(), streams.end(), stream), streams.end());
  return CUDA_SUCCESS;
}

int32_t on_StreamSynchronize(Call& call, const StreamSynchronizeRequest& request, StreamSynchronizeReply&) {
  uint32_t device = 0;
  const auto stream = call.stream(request.stream, device);
  return stream ? call.wait_for(stream) : int32_t(CUDA_ERROR_INVALID_HANDLE);
}

int32_t on_StreamQuery(Call& call, const StreamQueryRequest& request, StreamQueryReply&) {
  uint32_t device = 0;
  const auto stream = call.stream(request.stream, device);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  const Order& order = *stream->context;
  if (order.error) return order.error;
  const auto idle = [](const auto& other) { return other->pending.empty() || !other->blocking; };
  const bool done = stream->pending.empty() &&
                    (stream != order.legacy || std::all_of(order.streams.begin(), order.streams.end(), idle));
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

int32_t on_StreamState(Call& call, const StreamStateRequest& request, StreamStateReply& reply) {
  uint32_t device = 0;
  if (!call.stream(request.stream, device)) return CUDA_ERROR_INVALID_HANDLE;
  reply.device = device;
  const auto found = call.client->streams.find(request.stream);
  if (found == call.client->streams.end()) {  // one of the driver's own
    reply.context = call.context->id;
    return CUDA_SUCCESS;
  }
  reply.context = found->second.context;
  reply.flags = found->second.flags;
  reply.priority = found->second.priority;
  return CUDA_SUCCESS;
}

int32_t on_StreamWaitEvent(Call& call, const StreamWaitEventRequest& request, StreamWaitEventReply&) {
  uint32_t device = 0;
  const auto stream = call.stream(request.stream, device);
  const auto event = call.client->events.find(request.event);
  if (!stream || event == call.client->events.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (!event->second.recorded) return CUDA_SUCCESS;
  auto operation = std::make_shared<Operation>();
  operation->after = event->second.recorded;
  return call.submit(stream, device, std::move(operation));
}

int32_t on_EventCreate(Call& call, const EventCreateRequest& request, EventCreateReply& reply) {
  if (!call.context) return CUDA_ERROR_INVALID_CONTEXT;
  reply.event = call.machine.next_id();
  call.client->events[reply.event] = {call.context->id, request.flags, nullptr};
  return CUDA_SUCCESS;
}

int32_t on_EventDestroy(Call& call, const EventDestroyRequest& request, EventDestroyReply&) {
  return call.client->events.erase(request.event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

int32_t on_EventRecord(Call& call, const EventRecordRequest& request, EventRecordReply&) {
  uint32_t device = 0;
  const auto stream = call.stream(request.stream, device);
  const auto event = call.client->events.find(request.event);
  if (!stream || event == call.client->events.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (call.client->contexts.at(event->second.context).order != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  auto operation = std::make_shared<Operation>();
  event->second.recorded = operation;
  const int32_t status = call.submit(stream, device, operation);
  if (status != CUDA_SUCCESS) {  // nobody waits for it in vain
    operation->status = status;
    operation->finished = true;
    call.machine.wake();
  }
  return status;
}

int32_t on_EventSynchronize(Call& call, const EventSynchronizeRequest& request, EventSynchronizeReply&) {
  const auto event = call.client->events.find(request.event);
  if (event == call.client->events.end()) return CUDA_ERROR_INVALID_HANDLE;
  const auto recorded = event->second.recorded;
  return recorded ? call.wait(*recorded) : int32_t(CUDA_SUCCESS);
}

int32_t on_EventQuery(Call& call, const EventQueryRequest& request, EventQueryReply&) {
  const auto event = call.client->events.find(request.event);
  if (event == call.client->events.end()) return CUDA_ERROR_INVALID_HANDLE;
  const auto& recorded = event->second.recorded;
  if (recorded && !recorded->finished) return CUDA_ERROR_NOT_READY;
  return recorded ? recorded->status : int32_t(CUDA_SUCCESS);
}

int32_t on_EventElapsed(Call& call, const EventElapsedRequest& request, EventElapsedReply& reply) {
  std::shared_ptr<Operation> recorded[2];
  for (int i = 0; i < 2; i++) {
    const auto event = call.client->events.find(i == 0 ? request.start : request.end);
    if (event == call.client->events.end()) return CUDA_ERROR_INVALID_HANDLE;
    recorded[i] = event->second.recorded;
    if (event->second.flags & CU_EVENT_DISABLE_TIMING || !recorded[i]) return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!recorded[0]->finished || !recorded[1]->finished) return CUDA_ERROR_NOT_READY;
  for (const auto& operation : recorded)
    if (operation->status != CUDA_SUCCESS) return operation->status;
  reply.nanoseconds = int64_t(recorded[1]->ended - recorded[0]->ended);
  return CUDA_SUCCESS;
}

int32_t on_Launch(Call& call, const LaunchRequest& request, LaunchReply&) {
  uint32_t device = 0;
  const auto stream = call.stream(request.stream, device);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (call.context && call.context->order != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  Work work;
  if (const int32_t status = read_launch(request, call.payload, work)) return status;
  AddressSpace& space = call.client->space;
  auto operation = std::make_shared<Operation>();
  operation->work = Operation::Work::kKernel;
  operation->left = work.duration;
  operation->check = [&space, work, device] { return check(work, space, device); };
  operation->effect = [&mutex = call.machine.mutex, &space, work, device](const Operation& self) {
    return run(work, space, device, Mover(mutex, self.dropped));
  };
  return call.submit(stream, device, std::move(operation));
}

int32_t on_LaunchHost(Call& call, const LaunchHostRequest& request, LaunchHostReply&) {
  uint32_t device = 0;
  const auto stream = call.stream(request.stream, device);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  Client* client = call.client.get();
  auto due = std::make_shared<Operation>();
  due->effect = [client, cookie = request.cookie](const Operation&) {
    client->host_calls.push_back(cookie);
    return int32_t(CUDA_SUCCESS);
  };
  auto behind = std::make_shared<Operation>();
  behind->after = client->open_host_calls[request.cookie] = std::make_shared<Operation>();
  int32_t status = call.submit(stream, device, std::move(due));
  if (status == CUDA_SUCCESS) status = call.submit(stream, device, std::move(behind));
  if (status != CUDA_SUCCESS) client->open_host_calls.erase(request.cookie);
  return status;
}

int32_t on_NextHostCall(Call& call, const NextHostCallRequest&, NextHostCallReply& reply) {
  Client& client = *call.client;
  while (client.host_calls.empty() && !client.gone) call.machine.finished.wait(call.lock);
  if (client.gone) return CUDA_ERROR_DEINITIALIZED;
  reply.cookie = client.host_calls.front();
  client.host_calls.pop_front();
  return CUDA_SUCCESS;
}

int32_t on_HostCallDone(Call& call, const HostCallDoneRequest& request, HostCallDoneReply&) {
  const auto found = call.client->open_host_calls.find(request.cookie);
  if (found == call.client->open_host_calls.end()) return CUDA_ERROR_INVALID_VALUE;
  found->second->ended = monotonic_now();
  found->second->finished = true;
  call.client->open_host_calls.erase(found);
  call.machine.wake();
  return CUDA_SUCCESS;
}

}  // namespace vgpu::sim
