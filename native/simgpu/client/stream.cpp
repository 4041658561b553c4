#include "streams.h"

#include <utility>
#include <vector>

#include "contexts.h"
#include "driver.h"
#include "host_calls.h"

namespace vgpu::sim {
namespace {

thread_local bool null_is_per_thread = false;

// This thread's default streams, one a context, made when first used.
class OwnStreams {
 public:
  ~OwnStreams() {
    if (!connected()) return;
    for (const auto& [context, stream] : streams_) call(CallId::kStreamDestroy, 0, StreamDestroyRequest{stream});
  }
  CUresult find(uint64_t context, uint64_t& stream) {
    StreamStateReply state;
    for (auto own = streams_.begin(); own != streams_.end(); ++own) {
      if (own->first != context) continue;
      stream = own->second;
      if (call(CallId::kStreamState, context, StreamStateRequest{stream}, state) != CUDA_ERROR_INVALID_HANDLE) return CUDA_SUCCESS;
      streams_.erase(own);  // it ended when the primary context was reset
      break;
    }
    StreamCreateReply created;
    const CUresult outcome = result(call(CallId::kStreamCreate, context, StreamCreateRequest{CU_STREAM_DEFAULT, 0}, created));
    if (outcome != CUDA_SUCCESS) return outcome;
    streams_.emplace_back(context, created.stream);
    stream = created.stream;
    return CUDA_SUCCESS;
  }

 private:
  std::vector<std::pair<uint64_t, uint64_t>> streams_;
};

thread_local OwnStreams own_streams;

template <class Request, class Reply>
CUresult ask_of(const StreamTarget& target, CallId id, const Request& request, Reply& reply) {
  return result(call(id, target.context, request, reply));
}

CUresult state_of(CUstream stream, StreamStateReply& state, StreamTarget& target) {
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  return ask_of(target, CallId::kStreamState, StreamStateRequest{target.stream}, state);
}

}  // namespace

PerThreadDefault::PerThreadDefault() : before_(null_is_per_thread) { null_is_per_thread = true; }
PerThreadDefault::~PerThreadDefault() { null_is_per_thread = before_; }

CUresult resolve(CUstream stream, StreamTarget& target) {
  if (const CUresult wrong = initialized()) return wrong;
  target.context = current_or_none();
  target.stream = number(stream);
  if (target.stream == 0) target.stream = null_is_per_thread ? kPerThreadStream : kLegacyStream;
  if (target.stream > kPerThreadStream) return CUDA_SUCCESS;
  if (!target.context) return CUDA_ERROR_INVALID_CONTEXT;
  return target.stream == kPerThreadStream ? own_streams.find(target.context, target.stream) : CUDA_SUCCESS;
}

}  // namespace vgpu::sim

using namespace vgpu::sim;

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (!stream || flags & ~unsigned(CU_STREAM_NON_BLOCKING)) return CUDA_ERROR_INVALID_VALUE;
  if (priority > 0) priority = 0;
  if (priority < kGreatestPriority) priority = kGreatestPriority;
  StreamCreateReply created;
  if (const CUresult wrong = ask(CallId::kStreamCreate, StreamCreateRequest{flags, priority}, created)) return wrong;
  *stream = handle<CUstream>(created.stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  if (const CUresult wrong = initialized()) return wrong;
  if (number(stream) <= kPerThreadStream) return CUDA_ERROR_INVALID_HANDLE;
  return ask_anywhere(CallId::kStreamDestroy, StreamDestroyRequest{number(stream)});
}

CUresult cuStreamSynchronize(CUstream stream) {
  StreamTarget target;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  Nothing nothing;
  return ask_of(target, CallId::kStreamSynchronize, StreamSynchronizeRequest{target.stream}, nothing);
}

CUresult cuStreamQuery(CUstream stream) {
  StreamTarget target;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  Nothing nothing;
  return ask_of(target, CallId::kStreamQuery, StreamQueryRequest{target.stream}, nothing);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int) {
  StreamTarget target;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  Nothing nothing;
  return ask_of(target, CallId::kStreamWaitEvent, StreamWaitEventRequest{target.stream, number(event)}, nothing);
}

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  StreamStateReply state;
  StreamTarget target;
  if (!priority) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult wrong = state_of(stream, state, target)) return wrong;
  *priority = state.priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int* flags) {
  StreamStateReply state;
  StreamTarget target;
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult wrong = state_of(stream, state, target)) return wrong;
  *flags = state.flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  StreamStateReply state;
  StreamTarget target;
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult wrong = state_of(stream, state, target)) return wrong;
  *id = target.stream;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  StreamStateReply state;
  StreamTarget target;
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult wrong = state_of(stream, state, target)) return wrong;
  *context = handle<CUcontext>(state.context);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
  StreamStateReply state;
  StreamTarget target;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult wrong = state_of(stream, state, target)) return wrong;
  *device = device_ordinal(state.device);
  return CUDA_SUCCESS;
}

// No call that begins a capture is exported, so that none is ever active.
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  StreamTarget target;
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_GLOBAL;
  if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(own, *mode);
  return CUDA_SUCCESS;
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* argument, unsigned int flags) {
  StreamTarget target;
  if (!function || flags) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  return launch_host_call(target, [stream, function, argument] { function(stream, CUDA_SUCCESS, argument); });
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  StreamTarget target;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  return launch_host_call(target, [function, argument] { function(argument); });
}
