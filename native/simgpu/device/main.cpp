// vgpu-simgpu SOCKET SPEC: the simulated machine. See common/wire.h for how it is started and spoken to.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "common/spec.h"
#include "door.h"
#include "machine.h"

namespace vgpu::sim {
namespace {

[[noreturn]] void fail(const char* what, const std::string& path) {
  fprintf(stderr, "vgpu-simgpu: %s %s: %s\n", what, path.c_str(), strerror(errno));
  _exit(1);
}

// The host service's devices are for all users, as /dev/nvidia* are: root's, in a directory that everybody may enter.
bool for_all_users(const std::string& path) {
  struct stat directory {};
  return getuid() == 0 && stat(path.substr(0, path.rfind('/') + 1).c_str(), &directory) == 0 && (directory.st_mode & S_IXOTH) &&
         !(directory.st_mode & S_IWOTH);
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
  const mode_t mask = umask(for_all_users(path) ? 0111 : 0177);
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

// Whoever starts us may have left descriptors open for its children; held here, a pipe among them would never end.
void close_inherited() {
  DIR* open_ones = opendir("/proc/self/fd");
  if (!open_ones) return;
  while (const dirent* entry = readdir(open_ones)) {
    const int descriptor = atoi(entry->d_name);
    if (descriptor > 2 && descriptor != dirfd(open_ones)) close(descriptor);
  }
  closedir(open_ones);
}

// A descriptor for each connection and each export.
void raise_descriptor_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

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
  close_inherited();
  raise_descriptor_limit();
  const std::string path = argv[1];
  const int parent = fork_daemon();
  const int listener = listen_at(path);
  ready(parent);
  static Machine machine(spec, path);
  for (const auto& device : machine.devices) std::thread([&device] { machine.run_engine(*device); }).detach();
  Door(machine, path, listener).run();
  _exit(0);  // the threads still wait
}
