#include "door.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <system_error>
#include <thread>

#include "session.h"

namespace vgpu::sim {
namespace {

constexpr uint64_t kLinger = 5000000000;                                  // ns without a client
constexpr uint64_t kListener = UINT64_MAX, kExports = UINT64_MAX - 1;  // in epoll_; else a pidfd and its pid

}  // namespace

Door::Door(Machine& machine, std::string path, int listener)
    : machine_(machine), path_(std::move(path)), listener_(listener), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  stat(path_.c_str(), &own_);
  watch(listener_, kListener);
  watch(machine_.exports.poll_descriptor(), kExports);
}

void Door::run() {
  uint64_t idle_since = monotonic_now();
  for (;;) {
    epoll_event event;
    if (epoll_wait(epoll_, &event, 1, 1000) == 1) handle(event.data.u64);
    {
      std::unique_lock lock(machine_.mutex);
      if (!machine_.clients.empty()) idle_since = monotonic_now();
    }
    if (monotonic_now() - idle_since >= kLinger && may_end()) return;
  }
}

void Door::watch(int descriptor, uint64_t what) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = what;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event);
}

void Door::handle(uint64_t what) {
  if (what == kListener) return accept_one();
  if (what == kExports) {
    std::unique_lock lock(machine_.mutex);
    return machine_.exports.collect();
  }
  // A process has ended.
  close(int(what >> 32));
  const pid_t pid = pid_t(what & UINT32_MAX);
  watched_.erase(pid);
  std::unique_lock lock(machine_.mutex);
  if (const auto found = machine_.clients.find(pid); found != machine_.clients.end())
    machine_.retire(std::shared_ptr<Client>(found->second));
}

void Door::accept_one() {
  const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (connection < 0) return;
  ucred peer{};
  socklen_t size = sizeof peer;
  getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  const bool allowed = peer.uid == getuid() || peer.uid == 0 || (own_.st_mode & S_IWOTH);  // main.cpp says for whom the socket is
  if (!allowed || peer.pid <= 0 || !watch_process(peer.pid)) {
    close(connection);
    return;
  }
  sessions_++;
  try {
    std::thread([this, connection, pid = peer.pid] {
      serve(machine_, connection, pid);
      sessions_--;
    }).detach();
  } catch (const std::system_error&) {  // no more threads: this one is refused, the others live
    sessions_--;
    close(connection);
  }
}

bool Door::watch_process(pid_t pid) {
  if (watched_.count(pid)) return true;
  const int pidfd = int(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) return false;
  watched_.insert(pid);
  watch(pidfd, uint64_t(uint32_t(pidfd)) << 32 | uint32_t(pid));
  return true;
}

// With the starter's lock held, until we are gone, nobody can be about to start us anew; whoever has already connected is served.
bool Door::may_end() {
  const int lock = open((path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return false;
  }
  pollfd pending{listener_, POLLIN, 0};
  std::unique_lock machine_lock(machine_.mutex);
  if (poll(&pending, 1, 0) != 0 || sessions_ != 0 || !machine_.clients.empty()) {
    if (lock >= 0) close(lock);
    return false;
  }
  struct stat now;
  if (stat(path_.c_str(), &now) == 0 && now.st_dev == own_.st_dev && now.st_ino == own_.st_ino) unlink(path_.c_str());
  return true;
}

}  // namespace vgpu::sim
