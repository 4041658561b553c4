// What the client libraries and the device process say to each other.
//
// SOCK_STREAM on a Unix socket; one request, one reply, in order, per connection. A client process opens one connection for each
// thread that is inside a call at the same time; the device process knows the process by SO_PEERCRED.
//
//   request: RequestHeader, <Call>Request, `payload` bytes     (Import carries a descriptor)
//   reply:   ReplyHeader,   <Call>Reply,   `payload` bytes     (Hello, HostAlloc and Export carry a descriptor)
//
// Both structs are always there in full, sizeof(Nothing) == 1 byte included, and in the reply after an error too (zeros). A descriptor
// comes with the header's first byte. Hello's is the connection's staging memory; HostAlloc's the memory that was asked for.
// `context` is 0 for calls that need none. A context with a sticky error answers with it to every call behind ContextState in the list.
// Streams, events and handles are known by number in the whole client process; a stream of 0 is the legacy stream.
//
// The device process is `vgpu-simgpu SOCKET SPEC` (SPEC as VGPU_SIMULATED's value). Its first process ends with status 0 once the
// socket listens, and the daemon lives on; any other status means that it could not start, with a line on stderr. Whoever starts it
// holds flock on `SOCKET.lock`, and has made the directory.
//
// Addresses are device addresses of the calling process; sizes are bytes, times nanoseconds of the device's timeline.
// Handles are numbers that the device process hands out; 0 is "none", and kLegacyStream/kPerThreadStream are the driver's own.
#pragma once
#include <cstddef>
#include <cstdint>

namespace vgpu::sim {

constexpr uint32_t kWireVersion = 1;
constexpr size_t kInlineLimit = 64 << 10;  // copies up to this size travel in the socket and are asynchronous
constexpr size_t kStagingSize = 8 << 20;   // larger ones go through a memfd of this size, one per connection
constexpr size_t kMaxPayload = 1 << 20;
constexpr uint64_t kGranularity = 2 << 20;
constexpr uint32_t kMaxDevices = 16;
constexpr uint64_t kLegacyStream = 1;
constexpr uint64_t kPerThreadStream = 2;

struct RequestHeader {
  uint32_t call;
  uint32_t payload;
  uint64_t context;
};

struct ReplyHeader {
  int32_t status;  // CUresult
  uint32_t payload;
};

struct Nothing {};

struct Rows {  // a rectangle: `height` rows of `width` bytes, `pitch` bytes apart; one row for a plain copy
  uint64_t address;
  uint64_t pitch;
};

// The kernels that the device knows, each with one element a thread (blockIdx.x * blockDim.x + threadIdx.x < n), as in
// examples/demo_kernels.cu:
//   fill(float *y, float value, unsigned n)                       y = value
//   saxpy(float a, const float *x, float *y, unsigned n)          y = a * x + y
//   add(const float *x, const float *y, float *z, unsigned n)     z = x + y
//   scale(float a, float *x, unsigned n)                          x = a * x
//   spin(unsigned microseconds)                                   takes that much of the device's time
enum class Kernel : uint32_t { kUnknown, kFill, kSaxpy, kAdd, kScale, kSpin };

enum class Memory : uint32_t { kDevice, kManaged, kHost, kMapped, kPool };

#define VGPU_SIM_CALLS(X)                                                                                                        \
  X(Hello) X(DeviceState) X(Processes)                                                                                           \
  X(PrimaryRetain) X(PrimaryRelease) X(PrimaryReset) X(PrimaryState) X(PrimarySetFlags)                                          \
  X(ContextCreate) X(ContextDestroy) X(ContextState) X(ContextSynchronize)                                                       \
  X(Allocate) X(Free) X(AllocateAsync) X(FreeAsync) X(HostAlloc) X(HostFree) X(AddressState) X(PoolState)                        \
  X(Reserve) X(ReserveFree) X(Create) X(Release) X(Map) X(Unmap) X(SetAccess) X(GetAccess) X(Export) X(Import) X(HandleOf)       \
  X(HandleState)                                                                                                                 \
  X(CopyIn) X(CopyOut) X(CopyDevice) X(Fill)                                                                                     \
  X(StreamCreate) X(StreamDestroy) X(StreamSynchronize) X(StreamQuery) X(StreamState) X(StreamWaitEvent)                         \
  X(EventCreate) X(EventDestroy) X(EventRecord) X(EventSynchronize) X(EventQuery) X(EventElapsed)                                \
  X(Launch) X(LaunchHost) X(NextHostCall) X(HostCallDone)

enum class CallId : uint32_t {
#define X(name) k##name,
  VGPU_SIM_CALLS(X)
#undef X
};

struct HelloRequest {
  uint32_t version;
  // Which program runs under this pid, from the random bytes that the kernel gives each (AT_RANDOM): alike in all connections of a program,
  // libcuda's and NVML's. Another one than the pid's last: what the earlier program had is gone.
  uint32_t program;
};
struct DeviceDescription {
  uint8_t uuid[16];
  uint64_t total;
  uint64_t context_overhead;
};
struct HelloReply {
  uint32_t device_count;
  uint32_t reserved;
  DeviceDescription device[kMaxDevices];
};

struct DeviceStateRequest { uint32_t device; };
struct DeviceStateReply {
  uint64_t used;
  uint64_t busy;             // nanoseconds since the device process started
  uint32_t utilization;      // per cent of the last second
  uint32_t memory_activity;  // per cent of the last second spent in copies and fills
};
struct ProcessesRequest { uint32_t device; };
struct ProcessesReply { uint32_t count; };  // payload: ProcessState[count]
struct ProcessState {
  uint32_t pid;
  uint32_t utilization;      // per cent of the last second
  uint32_t memory_activity;  // as in DeviceStateReply
  uint32_t reserved;
  uint64_t used;
  uint64_t busy;
};

struct PrimaryRetainRequest { uint32_t device; };
struct PrimaryRetainReply { uint64_t context; };
struct PrimaryReleaseRequest { uint32_t device; };
using PrimaryReleaseReply = Nothing;
struct PrimaryResetRequest { uint32_t device; };
using PrimaryResetReply = Nothing;
struct PrimaryStateRequest { uint32_t device; };
struct PrimaryStateReply { uint32_t flags; uint32_t active; };
struct PrimarySetFlagsRequest { uint32_t device; uint32_t flags; };
using PrimarySetFlagsReply = Nothing;
struct ContextCreateRequest { uint32_t device; uint32_t flags; };
struct ContextCreateReply { uint64_t context; };
struct ContextDestroyRequest { uint64_t context; };
using ContextDestroyReply = Nothing;
struct ContextStateRequest { uint64_t context; };
struct ContextStateReply { uint32_t device; uint32_t flags; uint32_t primary; uint32_t reserved; };
using ContextSynchronizeRequest = Nothing;
using ContextSynchronizeReply = Nothing;

struct AllocateRequest { uint64_t size; };
struct AllocateReply { uint64_t address; };
struct FreeRequest { uint64_t address; };
using FreeReply = Nothing;
struct AllocateAsyncRequest { uint64_t size; uint64_t stream; };
struct AllocateAsyncReply { uint64_t address; };
struct FreeAsyncRequest { uint64_t address; uint64_t stream; };
using FreeAsyncReply = Nothing;
struct HostAllocRequest {
  uint64_t address;  // where the caller has reserved room and will map the memory
  uint64_t size;
  Memory kind;       // kHost, or kManaged: charged to the device
  uint32_t reserved;
};
using HostAllocReply = Nothing;
struct HostFreeRequest { uint64_t address; };
using HostFreeReply = Nothing;
struct AddressStateRequest { uint64_t address; };
struct AddressStateReply {
  uint64_t base;
  uint64_t size;
  uint64_t context;
  uint64_t id;
  Memory kind;
  uint32_t device;
};
struct PoolStateRequest { uint32_t device; };
struct PoolStateReply { uint64_t used; uint64_t high; };

struct ReserveRequest { uint64_t size; uint64_t alignment; uint64_t hint; };
struct ReserveReply { uint64_t address; };
struct ReserveFreeRequest { uint64_t address; uint64_t size; };
using ReserveFreeReply = Nothing;
struct CreateRequest { uint64_t size; uint32_t device; uint32_t handle_types; };
struct CreateReply { uint64_t handle; };
struct ReleaseRequest { uint64_t handle; };
using ReleaseReply = Nothing;
struct MapRequest { uint64_t address; uint64_t size; uint64_t offset; uint64_t handle; };
using MapReply = Nothing;
struct UnmapRequest { uint64_t address; uint64_t size; };
using UnmapReply = Nothing;
struct Access { uint32_t device; uint32_t flags; };
struct SetAccessRequest { uint64_t address; uint64_t size; };  // payload: Access[]
using SetAccessReply = Nothing;
struct GetAccessRequest { uint64_t address; uint32_t device; uint32_t reserved; };
struct GetAccessReply { uint64_t flags; };
struct ExportRequest { uint64_t handle; };
using ExportReply = Nothing;
using ImportRequest = Nothing;
struct ImportReply { uint64_t handle; };
struct HandleOfRequest { uint64_t address; };
struct HandleOfReply { uint64_t handle; };
struct HandleStateRequest { uint64_t handle; };
struct HandleStateReply { uint64_t size; uint32_t device; uint32_t handle_types; };

struct CopyInRequest {  // host -> device; packed rows in the payload, or in staging memory
  Rows to;
  uint64_t width, height, stream;
  uint32_t staged, reserved;
};
using CopyInReply = Nothing;
struct CopyOutRequest {  // device -> host; always waits
  Rows from;
  uint64_t width, height, stream;
  uint32_t staged, reserved;
};
using CopyOutReply = Nothing;
struct CopyDeviceRequest {  // between addresses that the device process knows, pinned host memory included
  Rows to, from;
  uint64_t width, height, stream;
};
using CopyDeviceReply = Nothing;
struct FillRequest {
  Rows to;
  uint64_t width, height, stream;  // width in bytes
  uint32_t value, element;         // element: 1, 2 or 4 bytes
};
using FillReply = Nothing;

struct StreamCreateRequest { uint32_t flags; int32_t priority; };
struct StreamCreateReply { uint64_t stream; };
struct StreamDestroyRequest { uint64_t stream; };
using StreamDestroyReply = Nothing;
struct StreamSynchronizeRequest { uint64_t stream; };
using StreamSynchronizeReply = Nothing;
struct StreamQueryRequest { uint64_t stream; };
using StreamQueryReply = Nothing;
struct StreamStateRequest { uint64_t stream; };
struct StreamStateReply { uint64_t context; uint32_t flags; int32_t priority; uint32_t device; uint32_t reserved; };
struct StreamWaitEventRequest { uint64_t stream; uint64_t event; };
using StreamWaitEventReply = Nothing;
struct EventCreateRequest { uint32_t flags; uint32_t reserved; };
struct EventCreateReply { uint64_t event; };
struct EventDestroyRequest { uint64_t event; };
using EventDestroyReply = Nothing;
struct EventRecordRequest { uint64_t event; uint64_t stream; };
using EventRecordReply = Nothing;
struct EventSynchronizeRequest { uint64_t event; };
using EventSynchronizeReply = Nothing;
struct EventQueryRequest { uint64_t event; };
using EventQueryReply = Nothing;
struct EventElapsedRequest { uint64_t start; uint64_t end; };
struct EventElapsedReply { int64_t nanoseconds; };

struct LaunchRequest {  // payload: the parameters' values, each at its natural alignment, as a kernel's parameter space has them
  Kernel kernel;
  uint32_t grid[3], block[3];
  uint64_t stream;
};
using LaunchReply = Nothing;
struct LaunchHostRequest { uint64_t stream; uint64_t cookie; };
using LaunchHostReply = Nothing;
using NextHostCallRequest = Nothing;
struct NextHostCallReply { uint64_t cookie; };
struct HostCallDoneRequest { uint64_t cookie; };
using HostCallDoneReply = Nothing;

}  // namespace vgpu::sim
