// The device process's door: lets clients in, notices their deaths, and says when to end.
#pragma once
#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <set>
#include <string>

#include "machine.h"

namespace vgpu::sim {

class Door {
 public:
  // `listener` listens at `path`.
  Door(Machine& machine, std::string path, int listener);
  // Returns when nobody has been here for some seconds; the socket is gone then.
  void run();

 private:
  void watch(int descriptor, uint64_t what);
  void handle(uint64_t what);
  void accept_one();
  bool watch_process(pid_t pid);
  bool may_end();

  Machine& machine_;
  const std::string path_;
  const int listener_, epoll_;
  struct stat own_ {};            // the socket that is ours
  std::set<pid_t> watched_;       // those whose pidfd is in epoll_
  std::atomic<int> sessions_{0};  // connections let in, whether or not they have said Hello
};

}  // namespace vgpu::sim
