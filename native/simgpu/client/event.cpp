#include "driver.h"
#include "streams.h"

using namespace vgpu::sim;

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (!event || flags & ~(known | CU_EVENT_INTERPROCESS)) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_EVENT_INTERPROCESS) return CUDA_ERROR_NOT_SUPPORTED;
  EventCreateReply created;
  if (const CUresult wrong = ask(CallId::kEventCreate, EventCreateRequest{flags, 0}, created)) return wrong;
  *event = handle<CUevent>(created.event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) { return ask_anywhere(CallId::kEventDestroy, EventDestroyRequest{number(event)}); }

CUresult cuEventRecord(CUevent event, CUstream stream) {
  StreamTarget target;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  return result(call(CallId::kEventRecord, target.context, EventRecordRequest{number(event), target.stream}));
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  // CU_EVENT_RECORD_EXTERNAL (1) says something in captures only.
  return flags & ~1u ? CUDA_ERROR_INVALID_VALUE : cuEventRecord(event, stream);
}

CUresult cuEventSynchronize(CUevent event) { return ask_anywhere(CallId::kEventSynchronize, EventSynchronizeRequest{number(event)}); }

CUresult cuEventQuery(CUevent event) { return ask_anywhere(CallId::kEventQuery, EventQueryRequest{number(event)}); }

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  EventElapsedReply elapsed;
  const EventElapsedRequest request{number(start), number(end)};
  if (const CUresult wrong = ask_anywhere(CallId::kEventElapsed, request, elapsed)) return wrong;
  *milliseconds = float(double(elapsed.nanoseconds) / 1e6);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) { return cuEventElapsedTime(milliseconds, start, end); }
