#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "machine.h"

namespace vgpu::sim {

Exports::Exports() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

int Exports::add(std::shared_ptr<Block> block) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  struct stat identity;
  fstat(ends[0], &identity);
  epoll_event event{};  // EPOLLHUP is always reported
  event.data.u64 = identity.st_ino;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, ends[0], &event) != 0) {
    close(ends[0]);
    close(ends[1]);
    return -1;
  }
  entries_[identity.st_ino] = {ends[0], std::move(block)};
  return ends[1];
}

std::shared_ptr<Block> Exports::find(int descriptor) const {
  struct stat identity;
  if (descriptor < 0 || fstat(descriptor, &identity) != 0 || !S_ISFIFO(identity.st_mode)) return nullptr;
  const auto found = entries_.find(identity.st_ino);
  if (found == entries_.end()) return nullptr;
  // Another file system may use the same number.
  struct stat own;
  if (fstat(found->second.read_end, &own) != 0 || own.st_dev != identity.st_dev) return nullptr;
  return found->second.block;
}

void Exports::collect() {
  epoll_event event;
  while (epoll_wait(epoll_, &event, 1, 0) == 1) {
    const auto found = entries_.find(event.data.u64);
    close(found->second.read_end);
    entries_.erase(found);
  }
}

}  // namespace vgpu::sim
