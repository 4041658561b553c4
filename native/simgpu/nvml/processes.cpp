// Who uses a device: how much memory, which part of its time.
#include <string.h>
#include <time.h>

#include <algorithm>

#include "nvml.h"

namespace vgpu::sim {
namespace {

nvmlReturn_t running(nvmlDevice_t handle, std::vector<ProcessState>& processes) {
  ProcessesReply reply;
  std::vector<char> payload;
  if (const nvmlReturn_t wrong = ask<ProcessesRequest>(handle, CallId::kProcesses, reply, &payload)) return wrong;
  if (payload.size() != reply.count * sizeof(ProcessState)) return NVML_ERROR_UNKNOWN;
  processes.resize(reply.count);
  if (reply.count) memcpy(processes.data(), payload.data(), payload.size());
  return NVML_SUCCESS;
}

constexpr unsigned int kNoInstance = 0xffffffff;  // not on a MIG instance

void write(const ProcessState& from, nvmlProcessInfo_v1_t& to) { to = {from.pid, from.used}; }
void write(const ProcessState& from, nvmlProcessInfo_v2_t& to) { to = {from.pid, from.used, kNoInstance, kNoInstance}; }
void write(const ProcessState& from, nvmlProcessDetail_v1_t& to) { to = {from.pid, from.used, kNoInstance, kNoInstance, 0}; }

// The contract of NVML's lists: `count` is the room on entry and the number on return; too little room is INSUFFICIENT_SIZE.
template <class Entry, class Info, class Write>
nvmlReturn_t put(const std::vector<Entry>& entries, unsigned int* count, Info* infos, Write write_one) {
  const unsigned int room = *count;
  *count = unsigned(entries.size());
  if (entries.size() > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (!entries.empty() && !infos) return NVML_ERROR_INVALID_ARGUMENT;
  for (size_t i = 0; i < entries.size(); ++i) write_one(entries[i], infos[i]);
  return NVML_SUCCESS;
}

template <class Info>
nvmlReturn_t list(nvmlDevice_t handle, bool compute, unsigned int* count, Info* infos) {
  std::vector<ProcessState> processes;
  if (const nvmlReturn_t wrong = running(handle, processes)) return wrong;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  // Nothing draws on a simulated device, and there is no MPS server.
  if (!compute) processes.clear();
  return put(processes, count, infos, [](const ProcessState& from, Info& to) { write(from, to); });
}

// Who has had the device in the last second. One sample a process, taken now; NOT_FOUND where there is none.
nvmlReturn_t samples(nvmlDevice_t handle, unsigned long long last_seen, std::vector<ProcessState>& active, unsigned long long& now) {
  if (const nvmlReturn_t wrong = running(handle, active)) return wrong;
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  now = static_cast<unsigned long long>(time.tv_sec) * 1000000 + static_cast<unsigned long long>(time.tv_nsec) / 1000;
  active.erase(std::remove_if(active.begin(), active.end(), [](const ProcessState& one) { return one.utilization == 0; }), active.end());
  return active.empty() || now <= last_seen ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

#define VGPU_SIM_PROCESS_LIST(name, info, compute)                             \
  nvmlReturn_t name(nvmlDevice_t device, unsigned int* count, info* infos) {   \
    return list(device, compute, count, infos);                                \
  }
VGPU_SIM_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, true)
VGPU_SIM_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, true)
VGPU_SIM_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, true)
VGPU_SIM_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, false)
VGPU_SIM_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, false)
VGPU_SIM_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, false)
VGPU_SIM_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, false)
VGPU_SIM_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, false)
VGPU_SIM_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, false)
#undef VGPU_SIM_PROCESS_LIST

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t* details) {
  constexpr unsigned int compute = 0, last_mode = 2;  // graphics and MPS are the others
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (!details) return NVML_ERROR_INVALID_ARGUMENT;
  if (details->version != VGPU_NVML_STRUCT_VERSION(nvmlProcessDetailList_v1_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (details->mode > last_mode) return NVML_ERROR_INVALID_ARGUMENT;
  return list(device, details->mode == compute, &details->numProcArrayEntries, details->procArray);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t* out, unsigned int* count,
                                             unsigned long long last_seen) {
  std::vector<ProcessState> active;
  unsigned long long now;
  if (const nvmlReturn_t wrong = samples(device, last_seen, active, now)) return wrong;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  if (!out) *count = 0;  // asks for the number
  return put(active, count, out, [now](const ProcessState& from, nvmlProcessUtilizationSample_t& to) {
    to = {from.pid, now, from.utilization, from.memory_activity, 0, 0};
  });
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t* info) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (!info) return NVML_ERROR_INVALID_ARGUMENT;
  if (info->version != VGPU_NVML_STRUCT_VERSION(nvmlProcessesUtilizationInfo_v1_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  std::vector<ProcessState> active;
  unsigned long long now;
  if (const nvmlReturn_t wrong = samples(device, info->lastSeenTimeStamp, active, now)) return wrong;
  if (!info->procUtilArray) info->processSamplesCount = 0;  // asks for the number
  return put(active, &info->processSamplesCount, info->procUtilArray, [now](const ProcessState& from, nvmlProcessUtilizationInfo_v1_t& to) {
    to = {now, from.pid, from.utilization, from.memory_activity, 0, 0, 0, 0};
  });
}
