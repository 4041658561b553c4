// vgpu-simgpu SOCKET SPEC: the simulated machine. See common/wire.h for how it is started and spoken to.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>

#include "common/spec.h"
#include "machine.h"
#include "session.h"

namespace vgpu::sim {
namespace {

constexpr uint64_t kLinger = 5000000000;  // ns without a client, then the process ends

[[noreturn]] void fail(const char* what, const std::string& path) {
  fprintf(stderr, "vgpu-simgpu: %s %s: %s\n", what, path.c_str(), strerror(errno));
  _exit(1);
}

int listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    fail("socket", path);
  }
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_fd < 0) fail("socket", path);
  unlink(path.c_str());  // left by one that was killed: the starter holds the lock and found nobody listening
  const mode_t mask = umask(0177);
  if (bind(socket_fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("bind", path);
  umask(mask);
  if (listen(socket_fd, 128) != 0) fail("listen", path);
  return socket_fd;
}

// Goes on in a child; the parent ends with status 0 when the child has called `ready`, else as the child did. The child listens itself,
// so that SO_PEERCRED names a process that lives.
int fork_daemon() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe", "");
  const pid_t child = fork();
  if (child < 0) fail("fork", "");
  if (child == 0) {
    close(ends[0]);
    setsid();
    return ends[1];
  }
  close(ends[1]);
  char byte;
  if (read(ends[0], &byte, 1) == 1) _exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

void ready(int parent) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int standard = 0; standard < 3; standard++) dup2(null, standard);
  if (chdir("/") != 0 || write(parent, "", 1) != 1) _exit(1);
  close(parent);
}

class Door {
 public:
  Door(Machine& machine, std::string path, int listener)
      : machine_(machine), path_(std::move(path)), listener_(listener), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    stat(path_.c_str(), &own_);
    watch(listener_, EPOLLIN, kListener);
    watch(machine_.exports.poll_descriptor(), EPOLLIN, kExports);
  }

  // Lets clients in and notices their deaths, until there have been none for a while.
  void run() {
    uint64_t idle_since = monotonic_now();
    for (;;) {
      epoll_event event;
      const int count = epoll_wait(epoll_, &event, 1, 1000);
      if (count == 1) handle(event.data.u64);
      {
        std::unique_lock lock(machine_.mutex);
        if (!machine_.clients.empty()) idle_since = monotonic_now();
      }
      if (monotonic_now() - idle_since >= kLinger && may_end()) return;
    }
  }

 private:
  static constexpr uint64_t kListener = UINT64_MAX, kExports = UINT64_MAX - 1;  // else a pidfd and its pid

  void watch(int descriptor, uint32_t events, uint64_t what) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = what;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event);
  }

  void handle(uint64_t what) {
    if (what == kListener) {
      accept_one();
    } else if (what == kExports) {
      std::unique_lock lock(machine_.mutex);
      machine_.exports.collect();
    } else {
      const int pidfd = int(what >> 32);
      const pid_t pid = pid_t(what & UINT32_MAX);
      close(pidfd);
      watched_.erase(pid);
      std::unique_lock lock(machine_.mutex);
      if (const auto found = machine_.clients.find(pid); found != machine_.clients.end())
        machine_.retire(std::shared_ptr<Client>(found->second));
    }
  }

  void accept_one() {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    ucred peer{};
    socklen_t size = sizeof peer;
    getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    const bool allowed = peer.uid == getuid() || peer.uid == 0;
    if (!allowed || peer.pid <= 0 || !watch_process(peer.pid)) {
      close(connection);
      return;
    }
    sessions_++;
    std::thread([this, connection, pid = peer.pid] {
      serve(machine_, connection, pid);
      sessions_--;
    }).detach();
  }

  bool watch_process(pid_t pid) {
    if (watched_.count(pid)) return true;
    const int pidfd = int(syscall(SYS_pidfd_open, pid, 0));
    if (pidfd < 0) return false;
    watched_.insert(pid);
    watch(pidfd, EPOLLIN, uint64_t(uint32_t(pidfd)) << 32 | uint32_t(pid));
    return true;
  }

  // With the starter's lock held nobody can be about to start us anew while we go; whoever has already connected is served.
  bool may_end() {
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
    _exit(0);
  }

  Machine& machine_;
  const std::string path_;
  const int listener_, epoll_;
  struct stat own_ {};
  std::set<pid_t> watched_;
  std::atomic<int> sessions_{0};  // connections let in, whether or not they have said Hello
};

}  // namespace
}  // namespace vgpu::sim

int main(int argc, char** argv) {
  using namespace vgpu::sim;
  if (argc != 3) {
    fprintf(stderr, "usage: vgpu-simgpu SOCKET SPEC\n");
    return 2;
  }
  Spec spec;
  std::string error;
  if (!parse_spec(argv[2], spec, error)) {
    fprintf(stderr, "vgpu-simgpu: %s\n", error.c_str());
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  const std::string path = argv[1];
  const int parent = fork_daemon();
  const int listener = listen_at(path);
  ready(parent);
  static Machine machine(spec, path);
  for (const auto& device : machine.devices) std::thread([&device] { machine.run_engine(*device); }).detach();
  Door(machine, path, listener).run();
}
