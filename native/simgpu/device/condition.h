// A condition variable on CLOCK_MONOTONIC. std::condition_variable's wait on the steady clock needs pthread_cond_clockwait (glibc 2.30).
#pragma once
#include <pthread.h>
#include <time.h>

#include <cstdint>
#include <mutex>

namespace vgpu::sim {

inline uint64_t monotonic_now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return uint64_t(time.tv_sec) * 1000000000u + uint64_t(time.tv_nsec);
}

class Condition {
 public:
  Condition() {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition_, &attributes);
    pthread_condattr_destroy(&attributes);
  }
  Condition(const Condition&) = delete;
  ~Condition() { pthread_cond_destroy(&condition_); }

  void wait(std::unique_lock<std::mutex>& lock) { pthread_cond_wait(&condition_, lock.mutex()->native_handle()); }
  void wait_until(std::unique_lock<std::mutex>& lock, uint64_t nanoseconds) {
    const timespec deadline{time_t(nanoseconds / 1000000000u), long(nanoseconds % 1000000000u)};
    pthread_cond_timedwait(&condition_, lock.mutex()->native_handle(), &deadline);
  }
  void notify_all() { pthread_cond_broadcast(&condition_); }

 private:
  pthread_cond_t condition_;
};

}  // namespace vgpu::sim
