#include "session.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <type_traits>

#include "call.h"
#include "vgpu/cuda_abi.h"

namespace vgpu::sim {
namespace {

struct Handler {
  size_t request_size, reply_size;
  int32_t (*invoke)(Call&, const void*, void*);
};

constexpr size_t kMaxStruct = 2048;

const Handler kHandlers[] = {
#define X(name)                                                                                              \
  {sizeof(name##Request), sizeof(name##Reply), [](Call& call, const void* request, void* reply) {            \
     static_assert(sizeof(name##Request) <= kMaxStruct && sizeof(name##Reply) <= kMaxStruct, #name);         \
     return on_##name(call, *static_cast<const name##Request*>(request), *static_cast<name##Reply*>(reply)); \
   }},
    VGPU_SIM_CALLS(X)
#undef X
};

// Calls that make, end or ask for a context, or have nothing to do with one: whatever state the request's context is in.
bool needs_no_context(CallId call) { return call <= CallId::kContextState; }

class Session {
 public:
  Session(Machine& machine, int socket, pid_t pid) : machine_(machine), socket_(socket), pid_(pid) {}
  Session(const Session&) = delete;
  ~Session() {
    drop_descriptor(received_);
    drop_descriptor(sent_);
    close(socket_);
  }

  void run() {
    if (greet())
      while (receive() && answer(dispatch())) {
      }
    if (!client_) return;
    std::unique_lock lock(machine_.mutex);
    if (--client_->connections == 0) machine_.retire(client_);
  }

 private:
  bool read_all(void* data, size_t size) {
    char* at = static_cast<char*>(data);
    while (size > 0) {
      const ssize_t got = recv(socket_, at, size, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      at += got;
      size -= size_t(got);
    }
    return true;
  }

  // Reads a request; false when the connection ends or does not follow the protocol.
  bool receive() {
    drop_descriptor(received_);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{&header_, sizeof header_};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t got;
    do got = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got <= 0) return false;
    if (const cmsghdr* attached = CMSG_FIRSTHDR(&message); attached && attached->cmsg_level == SOL_SOCKET && attached->cmsg_type == SCM_RIGHTS)
      memcpy(&received_, CMSG_DATA(attached), sizeof received_);
    if (!read_all(reinterpret_cast<char*>(&header_) + got, sizeof header_ - size_t(got))) return false;
    if (header_.call >= sizeof kHandlers / sizeof *kHandlers || header_.payload > kMaxPayload) return false;
    if (!read_all(request_, kHandlers[header_.call].request_size)) return false;
    payload_.resize(header_.payload);
    return read_all(payload_.data(), payload_.size());
  }

  // A connection begins with Hello.
  bool greet() {
    if (!receive() || CallId(header_.call) != CallId::kHello) return false;
    sent_ = shareable_memory("vgpu-simulated-staging", kStagingSize);
    if (sent_ < 0) return false;
    void* data = mmap(nullptr, kStagingSize, PROT_READ | PROT_WRITE, MAP_SHARED, sent_, 0);
    if (data == MAP_FAILED) return false;
    staging_ = std::shared_ptr<char>(static_cast<char*>(data), [](char* memory) { munmap(memory, kStagingSize); });
    HelloRequest hello;
    memcpy(&hello, request_, sizeof hello);
    if (hello.version != kWireVersion) {
      memset(reply_, 0, sizeof(HelloReply));
      answer(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
      return false;
    }
    {
      std::unique_lock lock(machine_.mutex);
      client_ = machine_.enter(pid_, hello.program);
      client_->connections++;
    }
    return answer(dispatch());
  }

  int32_t dispatch() {
    const Handler& handler = kHandlers[header_.call];
    memset(reply_, 0, handler.reply_size);
    payload_out_.clear();
    std::unique_lock lock(machine_.mutex);
    if (client_->gone) return CUDA_ERROR_DEINITIALIZED;
    Call call{machine_, lock, client_, nullptr, staging_, std::move(payload_), received_, {}, -1};
    if (header_.context != 0 && !needs_no_context(CallId(header_.call))) {
      const auto found = client_->contexts.find(header_.context);
      if (found == client_->contexts.end()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
      if (found->second.order->error) return found->second.order->error;
      call.context = &found->second;
    }
    const int32_t status = handler.invoke(call, request_, reply_);
    payload_out_ = std::move(call.answer);
    if (call.sent >= 0) sent_ = call.sent;
    return status;
  }

  bool answer(int32_t status) {
    if (status != CUDA_SUCCESS) {
      memset(reply_, 0, kHandlers[header_.call].reply_size);
      payload_out_.clear();
      drop_descriptor(sent_);
    }
    ReplyHeader header{status, uint32_t(payload_out_.size())};
    iovec parts[3] = {{&header, sizeof header}, {reply_, kHandlers[header_.call].reply_size}, {payload_out_.data(), payload_out_.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 3;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (sent_ >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* attached = CMSG_FIRSTHDR(&message);
      attached->cmsg_level = SOL_SOCKET;
      attached->cmsg_type = SCM_RIGHTS;
      attached->cmsg_len = CMSG_LEN(sizeof(int));
      memcpy(CMSG_DATA(attached), &sent_, sizeof sent_);
    }
    size_t left = sizeof header + parts[1].iov_len + parts[2].iov_len;
    while (left > 0) {
      const ssize_t put = sendmsg(socket_, &message, MSG_NOSIGNAL);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return false;
      drop_descriptor(sent_);
      message.msg_control = nullptr;
      message.msg_controllen = 0;
      left -= size_t(put);
      size_t skip = size_t(put);
      for (iovec& part : parts) {
        const size_t taken = skip < part.iov_len ? skip : part.iov_len;
        part.iov_base = static_cast<char*>(part.iov_base) + taken;
        part.iov_len -= taken;
        skip -= taken;
      }
    }
    return true;
  }

  static void drop_descriptor(int& descriptor) {
    if (descriptor >= 0) close(descriptor);
    descriptor = -1;
  }

  Machine& machine_;
  const int socket_;
  const pid_t pid_;
  std::shared_ptr<Client> client_;
  std::shared_ptr<char> staging_;
  RequestHeader header_{};
  alignas(16) char request_[kMaxStruct], reply_[kMaxStruct];
  std::vector<char> payload_, payload_out_;
  int received_ = -1, sent_ = -1;
};

}  // namespace

void serve(Machine& machine, int socket, pid_t pid) { Session(machine, socket, pid).run(); }

}  // namespace vgpu::sim
