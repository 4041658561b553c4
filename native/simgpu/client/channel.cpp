#include "channel.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>

#include "starter.h"

namespace vgpu::sim {
namespace {

struct Process {
  std::mutex mutex;
  std::vector<Channel*> all;
  std::vector<Channel*> idle;
  HelloReply hello{};
  std::atomic<pid_t> connected_pid{0};
};

// Never destroyed: other threads may still be calling while the process ends.
Process& process() {
  static Process* it = new Process;
  return *it;
}

void before_fork() { process().mutex.lock(); }
void after_fork_in_parent() { process().mutex.unlock(); }
void after_fork_in_child() {
  for (Channel* channel : process().all) channel->close_inherited();
  process().all.clear();
  process().idle.clear();
  process().mutex.unlock();
}

uint32_t program() {
  uint32_t number;
  memcpy(&number, reinterpret_cast<const void*>(getauxval(AT_RANDOM)), sizeof number);
  return number;
}

Channel* open_channel(HelloReply& hello) {
  Process& own = process();
  Channel* channel = Channel::open(hello);
  if (!channel) return nullptr;
  std::lock_guard<std::mutex> lock(own.mutex);
  own.all.push_back(channel);
  return channel;
}

}  // namespace

Channel* Channel::open(HelloReply& hello) {
  const HelloRequest request{kWireVersion, program()};
  int32_t status = kUnreachable;
  // A device process that was just about to end may have let us in and gone: then the next attempt starts another one.
  for (int attempt = 0; attempt < 3 && status == kUnreachable; attempt++) {
    const int fd = connect_to_device_process();
    if (fd < 0) return nullptr;
    Channel* channel = new Channel(fd);
    int staging = -1;
    status = channel->call(CallId::kHello, 0, &request, sizeof request, &hello, sizeof hello, {}, nullptr, -1, &staging);
    if (status == 0 && staging >= 0) {
      void* mapped = mmap(nullptr, kStagingSize, PROT_READ | PROT_WRITE, MAP_SHARED, staging, 0);
      if (mapped != MAP_FAILED) channel->staging_ = static_cast<char*>(mapped);
    }
    if (staging >= 0) ::close(staging);
    if (channel->staging_) return channel;
    delete channel;
  }
  fprintf(stderr, "simulated GPU: the device process refused the connection (status %d, protocol %u)\n", status, kWireVersion);
  return nullptr;
}

Channel::~Channel() {
  if (fd_ >= 0) ::close(fd_);
  if (staging_) munmap(staging_, kStagingSize);
}

void Channel::close_inherited() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

int32_t Channel::fail() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  return kUnreachable;
}

bool Channel::send(const RequestHeader& header, const void* request, size_t request_size, Bytes in, int sent) {
  iovec parts[3] = {{const_cast<RequestHeader*>(&header), sizeof header},
                    {const_cast<void*>(request), request_size},
                    {const_cast<void*>(in.data), in.size}};
  size_t first = 0;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  while (first < 3) {
    msghdr message{};
    message.msg_iov = parts + first;
    message.msg_iovlen = 3 - first;
    if (sent >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* carried = CMSG_FIRSTHDR(&message);
      carried->cmsg_level = SOL_SOCKET;
      carried->cmsg_type = SCM_RIGHTS;
      carried->cmsg_len = CMSG_LEN(sizeof(int));
      memcpy(CMSG_DATA(carried), &sent, sizeof(int));
    }
    ssize_t written = sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    sent = -1;
    for (; first < 3 && size_t(written) >= parts[first].iov_len; ++first) written -= ssize_t(parts[first].iov_len);
    if (first < 3) {
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + written;
      parts[first].iov_len -= size_t(written);
    }
  }
  return true;
}

bool Channel::receive(void* data, size_t size, int* descriptor) {
  char* at = static_cast<char*>(data);
  while (size) {
    iovec part{at, size};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
    }
    const ssize_t got = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    if (descriptor)
      if (const cmsghdr* carried = CMSG_FIRSTHDR(&message); carried && carried->cmsg_type == SCM_RIGHTS)
        memcpy(descriptor, CMSG_DATA(carried), sizeof(int));
    at += got;
    size -= size_t(got);
  }
  return true;
}

int32_t Channel::call(CallId id, uint64_t context, const void* request, size_t request_size, void* reply, size_t reply_size, Bytes in,
                      std::vector<char>* out, int sent, int* received) {
  if (fd_ < 0) return kUnreachable;
  const RequestHeader header{uint32_t(id), uint32_t(in.size), context};
  if (!send(header, request, request_size, in, sent)) return fail();
  ReplyHeader answer;
  int descriptor = -1;
  if (!receive(&answer, sizeof answer, &descriptor)) return fail();
  if (received)
    *received = descriptor;
  else if (descriptor >= 0)
    ::close(descriptor);
  if (answer.payload > kMaxPayload || !receive(reply, reply_size, nullptr)) return fail();
  std::vector<char> unwanted;
  std::vector<char>& payload = out ? *out : unwanted;
  payload.resize(answer.payload);
  if (!receive(payload.data(), payload.size(), nullptr)) return fail();
  return answer.status;
}

Lease::Lease() : channel_(nullptr) {
  if (!connected()) return;
  Process& own = process();
  {
    std::lock_guard<std::mutex> lock(own.mutex);
    if (!own.idle.empty()) {
      channel_ = own.idle.back();
      own.idle.pop_back();
      return;
    }
  }
  HelloReply hello;
  channel_ = open_channel(hello);
}

Lease::~Lease() {
  if (!channel_) return;
  Process& own = process();
  std::lock_guard<std::mutex> lock(own.mutex);
  const auto place = std::find(own.all.begin(), own.all.end(), channel_);
  if (place == own.all.end()) return;  // this thread forked in the middle of a call, and is the child's
  if (!channel_->broken()) {
    own.idle.push_back(channel_);
    return;
  }
  own.all.erase(place);
  delete channel_;
}

bool connect_process() {
  static std::mutex once;
  std::lock_guard<std::mutex> lock(once);
  Process& own = process();
  const pid_t pid = own.connected_pid.load();
  if (pid) return pid == getpid();
  Channel* channel = open_channel(own.hello);
  if (!channel) return false;
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  own.connected_pid.store(getpid());
  std::lock_guard<std::mutex> idle(own.mutex);
  own.idle.push_back(channel);
  return true;
}

const HelloReply& devices() { return process().hello; }

bool connected() { return process().connected_pid.load(std::memory_order_relaxed) == getpid(); }

bool forked() {
  const pid_t pid = process().connected_pid.load();
  return pid && pid != getpid();
}

}  // namespace vgpu::sim
