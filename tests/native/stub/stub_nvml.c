/* The stub driver's NVML: STUB_DEVICES devices of STUB_MEMORY bytes, one foreign process on each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vgpu/nvml_abi.h"

#define EXPORT __attribute__((visibility("default")))

static int initialised;

static unsigned long long number(const char *name, unsigned long long fallback) {
    const char *text = getenv(name);
    return text ? strtoull(text, 0, 0) : fallback;
}

static int index_of(nvmlDevice_t device) { return (int)(long)device - 1; }

EXPORT nvmlReturn_t nvmlInit_v2(void) {
    initialised = 1;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return nvmlInit_v2();
}

EXPORT nvmlReturn_t nvmlShutdown(void) {
    initialised = 0;
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result) { return result == NVML_SUCCESS ? "Success" : "Error"; }

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    if (!initialised) return NVML_ERROR_UNINITIALIZED;
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned)number("STUB_DEVICES", 2);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (!initialised) return NVML_ERROR_UNINITIALIZED;
    if (index >= number("STUB_DEVICES", 2)) return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)(long)(index + 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    int b = index_of(device) + 1;
    if (b < 1) return NVML_ERROR_INVALID_ARGUMENT;
    char pair[3];
    snprintf(pair, sizeof pair, "%02x", b & 255);
    snprintf(uuid, length, "%s", "GPU-........-....-....-....-............");
    for (unsigned i = 0; uuid[i]; ++i)
        if (uuid[i] == '.') {
            uuid[i++] = pair[0];
            uuid[i] = pair[1];
        }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    for (unsigned i = 0; i < number("STUB_DEVICES", 2); ++i) {
        char text[96];
        nvmlDeviceGetUUID((nvmlDevice_t)(long)(i + 1), text, sizeof text);
        if (strcmp(text, uuid) != 0) continue;
        *device = (nvmlDevice_t)(long)(i + 1);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    *index = (unsigned)index_of(device);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    if (index_of(device) < 0 || !memory) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned long long total = number("STUB_MEMORY", 16ull << 30);
    *memory = (nvmlMemory_t){total, total - 1000, 1000};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    if (index_of(device) < 0 || !memory) return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != VGPU_NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned long long total = number("STUB_MEMORY", 16ull << 30);
    *memory = (nvmlMemory_v2_t){memory->version, total, 500, total - 1500, 1000};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos) {
    if (index_of(device) < 0 || !count) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned room = *count;
    *count = 1;
    if (room < 1) return NVML_ERROR_INSUFFICIENT_SIZE;
    infos[0] = (nvmlProcessInfo_v2_t){1, 1000, ~0u, ~0u}; /* PID 1 is nobody's tenant */
    return NVML_SUCCESS;
}
