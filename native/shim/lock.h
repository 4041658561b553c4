/* A scoped pthread mutex. Zeroed memory is an unlocked mutex on Linux, which the structures that a fork wipes rely on. */
#pragma once
#include <pthread.h>

namespace vgpu {

class Lock {
  public:
    explicit Lock(pthread_mutex_t &mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
    ~Lock() { pthread_mutex_unlock(&mutex_); }
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;

  private:
    pthread_mutex_t &mutex_;
};

}  // namespace vgpu
