// The way to the device process, for both client libraries: finds it or starts it, and makes the calls of wire.h.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "common/wire.h"

namespace vgpu::sim {

// Non-zero statuses that a Channel makes itself; all others are the device process's.
constexpr int32_t kUnreachable = -1;  // no device process, or it went away in the middle of a call

struct Bytes {
  const void* data = nullptr;
  size_t size = 0;
};

// One connection. Calls on it are made by one thread at a time.
class Channel {
 public:
  // Connects, and starts the device process where there is none yet; several processes may do so at once. nullptr, with a line on
  // stderr, when that fails.
  static Channel* open(HelloReply& hello);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // One call. `in` is the request's payload, `sent` a descriptor that goes with it (-1: none); `out` gets the reply's payload and
  // `received` its descriptor, which is closed where nobody asked for it. Returns the status: 0, a CUresult, or kUnreachable.
  int32_t call(CallId id, uint64_t context, const void* request, size_t request_size, void* reply, size_t reply_size, Bytes in = {},
               std::vector<char>* out = nullptr, int sent = -1, int* received = nullptr);

  char* staging() const { return staging_; }  // kStagingSize bytes that the device process sees too
  bool broken() const { return fd_ < 0; }
  void close_inherited();  // in a forked child: the parent's connection is not ours

 private:
  explicit Channel(int fd) : fd_(fd) {}
  bool send(const RequestHeader& header, const void* request, size_t request_size, Bytes in, int sent);
  bool receive(void* data, size_t size, int* descriptor);
  int32_t fail();

  int fd_;
  char* staging_ = nullptr;
};

// A connection for the time of one call, from those that are idle, else a new one.
class Lease {
 public:
  Lease();
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Channel* operator->() const { return channel_; }
  explicit operator bool() const { return channel_ != nullptr; }

 private:
  Channel* channel_;
};

// Opens the process's first connection, which all later ones follow; false when the device process cannot be reached. The answer stays
// as `devices()`. In a process forked from one that was connected it always fails: a driver's state does not survive a fork.
bool connect_process();
const HelloReply& devices();
bool connected();  // in this process: false in a forked child
bool forked();     // whether this process was forked from a connected one

// A call with its structs of wire.h:  call<CallId::kAllocate>(context, AllocateRequest{size}, reply, ...)
template <class Request, class Reply, class... Rest>
int32_t call(CallId id, uint64_t context, const Request& request, Reply& reply, Rest&&... rest) {
  Lease lease;
  if (!lease) return kUnreachable;
  return lease->call(id, context, &request, sizeof request, &reply, sizeof reply, std::forward<Rest>(rest)...);
}

template <class Request>
int32_t call(CallId id, uint64_t context, const Request& request) {
  Nothing nothing;
  return call(id, context, request, nothing);
}

}  // namespace vgpu::sim
