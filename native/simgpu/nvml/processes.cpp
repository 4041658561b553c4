// Who is on a device.
#include <string.h>
#include <sys/time.h>

#include <vector>

#include "nvml.h"

namespace vgpu::sim {
namespace {

constexpr unsigned kNoInstance = 0xffffffff;  // no MIG instance

nvmlReturn_t processes_of(nvmlDevice_t device, std::vector<ProcessState>& states) {
  uint32_t index;
  if (const nvmlReturn_t wrong = device_index(device, index)) return wrong;
  ProcessesReply reply;
  std::vector<char> payload;
  if (const nvmlReturn_t wrong = result(call(CallId::kProcesses, 0, ProcessesRequest{index}, reply, Bytes{}, &payload))) return wrong;
  states.resize(payload.size() / sizeof(ProcessState));
  if (!states.empty()) memcpy(states.data(), payload.data(), states.size() * sizeof(ProcessState));
  return NVML_SUCCESS;
}

void write(const ProcessState& state, nvmlProcessInfo_v1_t* info) { *info = {state.pid, state.used}; }
void write(const ProcessState& state, nvmlProcessInfo_v2_t* info) { *info = {state.pid, state.used, kNoInstance, kNoInstance}; }

// `count`: room in `infos`, then how many there are; more than there is room for is INSUFFICIENT_SIZE.
template <class Info>
nvmlReturn_t list(nvmlDevice_t device, unsigned* count, Info* infos) {
  std::vector<ProcessState> states;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t wrong = processes_of(device, states)) return wrong;
  const unsigned room = *count;
  *count = unsigned(states.size());
  if (*count > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (*count && !infos) return NVML_ERROR_INVALID_ARGUMENT;
  for (const ProcessState& state : states) write(state, infos++);
  return NVML_SUCCESS;
}

// Nothing draws on a simulated device, and no MPS server works for others.
nvmlReturn_t none(nvmlDevice_t device, unsigned* count) {
  uint32_t index;
  if (const nvmlReturn_t wrong = device_index(device, index)) return wrong;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_v1_t* infos) {
  return list(device, count, infos);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_v2_t* infos) {
  return list(device, count, infos);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_v2_t* infos) {
  return list(device, count, infos);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_v1_t*) {
  return none(device, count);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_v2_t*) {
  return none(device, count);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_v2_t*) {
  return none(device, count);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_v1_t*) {
  return none(device, count);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_v2_t*) {
  return none(device, count);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count, nvmlProcessInfo_v2_t*) {
  return none(device, count);
}

// One sample a process, of the last second: there is no history, so `since` (microseconds of the epoch) can only exclude it.
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t* samples, unsigned int* count,
                                             unsigned long long since) {
  std::vector<ProcessState> states;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t wrong = processes_of(device, states)) return wrong;
  timeval time;
  gettimeofday(&time, nullptr);
  const unsigned long long now = static_cast<unsigned long long>(time.tv_sec) * 1000000 + static_cast<unsigned long long>(time.tv_usec);
  if (states.empty() || since >= now) {
    *count = 0;
    return NVML_ERROR_NOT_FOUND;
  }
  const unsigned room = *count;
  *count = unsigned(states.size());
  if (!samples || *count > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (const ProcessState& state : states) *samples++ = {state.pid, now, state.utilization, 0, 0, 0};
  return NVML_SUCCESS;
}
