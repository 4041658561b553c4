#include "host_calls.h"

#include <signal.h>

#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace vgpu::sim {
namespace {

struct HostCalls {
  std::mutex mutex;
  std::map<uint64_t, std::function<void()>> waiting;
  uint64_t last_cookie = 0;
};

HostCalls& host_calls() {  // never destroyed: the thread outlives main
  static HostCalls* all = new HostCalls;
  return *all;
}

// Until the device process goes away. One thread, as the driver has one: the functions of a process never overlap.
void serve() {
  NextHostCallReply next;
  while (call(CallId::kNextHostCall, 0, NextHostCallRequest{}, next) == 0) {
    std::function<void()> function;
    {
      std::lock_guard<std::mutex> lock(host_calls().mutex);
      const auto found = host_calls().waiting.find(next.cookie);
      if (found != host_calls().waiting.end()) {
        function = std::move(found->second);
        host_calls().waiting.erase(found);
      }
    }
    if (function) function();
    call(CallId::kHostCallDone, 0, HostCallDoneRequest{next.cookie});
  }
}

}  // namespace

CUresult launch_host_call(const StreamTarget& target, std::function<void()> function) {
  static std::once_flag served;
  std::call_once(served, [] {
    // The program's signals are for its own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread(serve).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  });
  uint64_t cookie;
  {
    std::lock_guard<std::mutex> lock(host_calls().mutex);
    cookie = ++host_calls().last_cookie;
    host_calls().waiting[cookie] = std::move(function);
  }
  LaunchHostReply reply;
  const CUresult outcome = result(call(CallId::kLaunchHost, target.context, LaunchHostRequest{target.stream, cookie}, reply));
  if (outcome != CUDA_SUCCESS) {
    std::lock_guard<std::mutex> lock(host_calls().mutex);
    host_calls().waiting.erase(cookie);
  }
  return outcome;
}

}  // namespace vgpu::sim
