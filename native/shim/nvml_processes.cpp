/* NVML's lists of processes: the tenant's own, with the memory that the books have for each, and nobody else's. */
#include <unistd.h>

#include "nvml.h"

namespace vgpu {
namespace {

struct Listed {
    unsigned pid;
    uint64_t bytes;
};

/* Collects at most VGPU_MAX_PROCESSES. The page has the PIDs of the arbiter's namespace: they are ours too if our own slot says so;
 * in another namespace the one process whose number we know is ourselves. */
unsigned collect(const Tenant &t, unsigned part, Listed *out) {
    const vgpu_control &page = *t.page;
    unsigned own = unsigned(getpid()), found = 0;
    bool same_namespace = page.process[t.slot].pid == own;
    for (unsigned i = 0; i < page.process_high_water && i < VGPU_MAX_PROCESSES; ++i) {
        unsigned pid = __atomic_load_n(&page.process[i].pid, __ATOMIC_RELAXED);
        uint64_t bytes = process_bytes(page.process[i].device[part]);
        if (!pid || !bytes) continue;
        if (!same_namespace && i != t.slot) continue;
        out[found++] = {same_namespace ? pid : own, bytes};
    }
    return found;
}

void write(const Listed &from, nvmlProcessInfo_v1_t *to) { *to = {from.pid, from.bytes}; }

/* Not a MIG instance: both ids are "none". */
void write(const Listed &from, nvmlProcessInfo_v2_t *to) { *to = {from.pid, from.bytes, 0xffffffffu, 0xffffffffu}; }

/* The contract of these calls: `count` is the room on entry and the number on return; too little room is INSUFFICIENT_SIZE. The real
 * library answers first with no room, so its verdict on the handle stands. */
template <class Info>
nvmlReturn_t list(nvmlDevice_t device, unsigned int *count, Info *infos, bool compute,
                  nvmlReturn_t (*real)(nvmlDevice_t, unsigned int *, Info *)) {
    Tenant *t = count ? managed() : nullptr;
    Guard guard;
    int part = t ? part_of_handle(*t, device) : UNKNOWN_PART;
    if (part == UNKNOWN_PART) return real(device, count, infos);
    unsigned int none = 0;
    nvmlReturn_t verdict = real(device, &none, nullptr);
    if (verdict != NVML_SUCCESS && verdict != NVML_ERROR_INSUFFICIENT_SIZE) return verdict;
    Listed listed[VGPU_MAX_PROCESSES];
    unsigned found = compute ? collect(*t, unsigned(part), listed) : 0;
    unsigned room = *count;
    *count = found;
    if (found > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (found && !infos) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < found; ++i) write(listed[i], infos + i);
    return NVML_SUCCESS;
}

bool is_own(const Listed *listed, unsigned count, unsigned pid) {
    for (unsigned i = 0; i < count; ++i)
        if (listed[i].pid == pid) return true;
    return false;
}

/* Moves the tenant's entries to the front. */
template <class Entry>
unsigned keep_own(const Tenant &t, unsigned part, Entry *entries, unsigned count) {
    Listed listed[VGPU_MAX_PROCESSES];
    unsigned known = collect(t, part, listed), kept = 0;
    for (unsigned i = 0; i < count; ++i)
        if (is_own(listed, known, entries[i].pid)) entries[kept++] = entries[i];
    return kept;
}

}  // namespace
}  // namespace vgpu

using namespace vgpu;

#define VGPU_PROCESS_LIST(name, type, compute)                                                  \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, type *infos) {                  \
        return list(device, count, infos, compute, VGPU_REAL(name));                            \
    }
VGPU_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, true)
VGPU_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, true)
VGPU_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, true)
VGPU_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, false)
VGPU_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, false)
VGPU_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, false)
VGPU_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, false)
VGPU_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, false)
VGPU_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, false)
#undef VGPU_PROCESS_LIST

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *list) {
    Tenant *t = managed();
    Guard guard;
    nvmlReturn_t result = VGPU_REAL(nvmlDeviceGetRunningProcessDetailList)(device, list);
    int part = part_answered(t, result, device);
    if (part != UNKNOWN_PART && list->procArray)
        list->numProcArrayEntries = keep_own(*t, unsigned(part), list->procArray, list->numProcArrayEntries);
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count,
                                             unsigned long long since) {
    Tenant *t = managed();
    Guard guard;
    nvmlReturn_t result = VGPU_REAL(nvmlDeviceGetProcessUtilization)(device, samples, count, since);
    int part = part_answered(t, result, device);
    if (part != UNKNOWN_PART && samples) *count = keep_own(*t, unsigned(part), samples, *count);
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t *info) {
    Tenant *t = managed();
    Guard guard;
    nvmlReturn_t result = VGPU_REAL(nvmlDeviceGetProcessesUtilizationInfo)(device, info);
    int part = part_answered(t, result, device);
    if (part != UNKNOWN_PART && info->procUtilArray)
        info->processSamplesCount = keep_own(*t, unsigned(part), info->procUtilArray, info->processSamplesCount);
    return result;
}
