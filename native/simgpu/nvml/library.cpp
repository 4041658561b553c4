#include "nvml.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <mutex>


namespace vgpu::sim {
namespace {

struct Library {
  std::mutex mutex;
  unsigned initialized = 0;  // nvmlInit less nvmlShutdown
  std::unique_ptr<Channel> channel;
  pid_t pid = 0;  // whose `channel` is
  HelloReply machine{};
};

// Never destroyed: other threads may still be calling while the process ends.
Library& library() {
  static Library* it = new Library;
  return *it;
}

bool connect(Library& own) {
  static const int forks = pthread_atfork([] { library().mutex.lock(); }, [] { library().mutex.unlock(); }, [] { library().mutex.unlock(); });
  own.channel.reset();
  HelloReply machine{};
  own.channel.reset(forks == 0 ? Channel::open(machine) : nullptr);
  if (!own.channel) return false;
  own.machine = machine;
  own.pid = getpid();
  return true;
}

nvmlReturn_t init() {
  Library& own = library();
  std::lock_guard<std::mutex> lock(own.mutex);
  if (own.initialized == 0) {
    const char* simulated = getenv("VGPU_SIMULATED");
    if (!simulated || !*simulated || !connect(own)) return NVML_ERROR_DRIVER_NOT_LOADED;
  }
  ++own.initialized;
  return NVML_SUCCESS;
}

std::array<nvmlDevice_st, kMaxDevices> handles = [] {
  std::array<nvmlDevice_st, kMaxDevices> all;
  for (uint32_t index = 0; index < kMaxDevices; ++index) all[index].index = index;
  return all;
}();

}  // namespace

nvmlReturn_t initialized() {
  Library& own = library();
  std::lock_guard<std::mutex> lock(own.mutex);
  return own.initialized ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t describe(HelloReply& machine) {
  Library& own = library();
  std::lock_guard<std::mutex> lock(own.mutex);
  if (!own.initialized) return NVML_ERROR_UNINITIALIZED;
  machine = own.machine;
  return NVML_SUCCESS;
}

nvmlReturn_t describe(nvmlDevice_t handle, DeviceDescription& device) {
  HelloReply machine;
  if (const nvmlReturn_t wrong = describe(machine)) return wrong;
  for (uint32_t index = 0; index < machine.device_count; ++index) {
    if (handle != &handles[index]) continue;
    device = machine.device[index];
    return NVML_SUCCESS;
  }
  return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlDevice_t handle_of(uint32_t index) { return &handles[index]; }

nvmlReturn_t exchange(CallId id, const void* request, size_t request_size, void* reply, size_t reply_size, std::vector<char>* payload) {
  Library& own = library();
  std::lock_guard<std::mutex> lock(own.mutex);
  if (!own.initialized) return NVML_ERROR_UNINITIALIZED;
  const bool reachable = own.channel && (own.pid == getpid() || connect(own));  // a forked child does not use its parent's
  const int32_t status = reachable ? own.channel->call(id, 0, request, request_size, reply, reply_size, {}, payload) : kUnreachable;
  if (status == 0) return NVML_SUCCESS;
  if (status != kUnreachable) return NVML_ERROR_UNKNOWN;
  own.channel.reset();
  return NVML_ERROR_DRIVER_NOT_LOADED;
}

}  // namespace vgpu::sim

using namespace vgpu::sim;

nvmlReturn_t nvmlInit(void) { return init(); }
nvmlReturn_t nvmlInit_v2(void) { return init(); }

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  constexpr unsigned int no_gpus = 1, no_attach = 2;  // permissions to succeed; nothing here would need them
  return flags & ~(no_gpus | no_attach) ? NVML_ERROR_INVALID_ARGUMENT : init();
}

nvmlReturn_t nvmlShutdown(void) {
  Library& own = library();
  std::lock_guard<std::mutex> lock(own.mutex);
  if (!own.initialized) return NVML_ERROR_UNINITIALIZED;
  if (--own.initialized == 0) own.channel.reset();
  return NVML_SUCCESS;
}
