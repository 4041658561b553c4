// A CUstream as the device process's number of a stream.
#pragma once
#include <cstdint>

#include "driver.h"

namespace vgpu::sim {

constexpr int kGreatestPriority = -5;

// While one of these lives, a stream of NULL is this thread's own: the entry points with _ptds and _ptsz make one.
class PerThreadDefault {
 public:
  PerThreadDefault();
  ~PerThreadDefault();
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;

 private:
  bool before_;
};

// `context` is the current one, which a stream with a number of its own does not need: 0 then if there is none.
struct StreamTarget {
  uint64_t stream;
  uint64_t context;
};
CUresult resolve(CUstream stream, StreamTarget& target);

}  // namespace vgpu::sim
