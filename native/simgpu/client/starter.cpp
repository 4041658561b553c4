#include "starter.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "common/spec.h"

namespace vgpu::sim {
namespace {

int refuse(const std::string& what) {
  fprintf(stderr, "simulated GPU: %s\n", what.c_str());
  return -1;
}

int connect_once(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  int result;
  do result = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  while (result != 0 && errno == EINTR);
  if (result != 0) {
    close(fd);
    return -1;
  }
  // A daemon started by another user would see this process's data.
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || (peer.uid != geteuid() && peer.uid != 0)) {
    close(fd);
    errno = EPERM;
    return -1;
  }
  return fd;
}

bool make_directories(const std::string& file) {
  for (size_t slash = file.find('/', 1); slash != std::string::npos; slash = file.find('/', slash + 1))
    if (mkdir(file.substr(0, slash).c_str(), 0700) != 0 && errno != EEXIST) return false;
  return true;
}

// The library may be reached through a link made at run time; the executable lies beside the file itself.
std::string executable() {
  Dl_info own;
  char file[PATH_MAX];
  if (!dladdr(reinterpret_cast<void*>(&connect_to_device_process), &own) || !realpath(own.dli_fname, file)) return {};
  const std::string path = file;
  return path.substr(0, path.rfind('/') + 1) + "vgpu-simgpu";
}

// Returns when the device process listens (true) or could not start. Its environment is empty: the caller's LD_PRELOAD may be the shim.
// It inherits no blocked signal, but files without close-on-exec, which it closes itself.
bool start(const std::string& path, const std::string& spec) {
  const std::string program = executable();
  char* const arguments[] = {const_cast<char*>(program.c_str()), const_cast<char*>(path.c_str()), const_cast<char*>(spec.c_str()), nullptr};
  char* const environment[] = {nullptr};
  pid_t pid;
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error = posix_spawn(&pid, program.c_str(), nullptr, &attributes, arguments, environment);
  posix_spawnattr_destroy(&attributes);
  if (error) {
    refuse("cannot start " + program + ": " + strerror(error));
    return false;
  }
  int status;
  while (waitpid(pid, &status, 0) < 0) {
    // Where the program ignores SIGCHLD the status is lost; the connection then tells.
    if (errno != EINTR) return true;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int connect_to_device_process() {
  const char* text = getenv("VGPU_SIMULATED");
  const std::string spec_text = text ? text : "";
  if (spec_text.empty()) return refuse("VGPU_SIMULATED is not set; an example: 2x16GiB");
  const std::string path = socket_path(spec_text);
  if (path.size() >= sizeof sockaddr_un{}.sun_path) return refuse("the socket's path is longer than 107 bytes: " + path);
  if (const int fd = connect_once(path); fd >= 0) return fd;
  if (errno == EPERM) return refuse(path + " belongs to another user");

  Spec spec;
  std::string error;
  if (!parse_spec(spec_text, spec, error)) return refuse(error);
  if (!make_directories(path)) return refuse("cannot make the directory of " + path + ": " + strerror(errno));
  const std::string lock_path = path + ".lock";
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0) return refuse("cannot open " + lock_path + ": " + strerror(errno));
  while (flock(lock, LOCK_EX) != 0 && errno == EINTR) continue;
  int fd = connect_once(path);  // somebody else may have been faster
  if (fd < 0 && start(path, spec_text)) fd = connect_once(path);
  if (fd < 0) refuse("cannot reach the device process at " + path + ": " + strerror(errno));
  close(lock);
  return fd;
}

}  // namespace vgpu::sim
