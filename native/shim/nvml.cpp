/* NVML: a tenant is shown its leased devices in the lease's order, and on them its own memory. */
#include "nvml.h"

#include "driver.h"
#include "lock.h"

namespace vgpu {
namespace {

/* A program that never touches CUDA (nvidia-smi, pynvml) attaches here. */
template <class Init>
nvmlReturn_t init(Init real) {
    if (depth > 0) return real();
    Guard guard;
    if (Anchor *own = own_anchor()) {
        Lock lock(own->mutex);
        attach(own);
    }
    return real();
}

unsigned device_count(const Tenant &t) { return t.page->device_count < VGPU_MAX_DEVICES ? t.page->device_count : VGPU_MAX_DEVICES; }

/* The real answer first: whether NVML is initialised and the pointer good is the library's to say. */
nvmlReturn_t count(unsigned int *count, nvmlReturn_t (*real)(unsigned int *)) {
    Tenant *t = managed();
    Guard guard;
    nvmlReturn_t result = real(count);
    if (t && result == NVML_SUCCESS) *count = device_count(*t);
    return result;
}

nvmlReturn_t by_index(unsigned int index, nvmlDevice_t *device, nvmlReturn_t (*real)(unsigned int, nvmlDevice_t *)) {
    Tenant *t = managed();
    Guard guard;
    if (!t) return real(index, device);
    if (index >= device_count(*t)) return NVML_ERROR_INVALID_ARGUMENT;
    char uuid[41];
    format_uuid(t->page->device[index].uuid, uuid);
    return VGPU_REAL(nvmlDeviceGetHandleByUUID)(uuid, device);
}

/* A device outside of the lease is not there: the answer is what the library gives for one that does not exist. */
template <class Find>
nvmlReturn_t found(nvmlDevice_t *device, Find real) {
    Tenant *t = managed();
    Guard guard;
    nvmlReturn_t result = real();
    if (!t || result != NVML_SUCCESS || part_of_handle(*t, *device) != UNKNOWN_PART) return result;
    *device = nullptr;
    return NVML_ERROR_NOT_FOUND;
}

}  // namespace

int part_of_handle(const Tenant &t, nvmlDevice_t device) {
    char text[96];
    unsigned char uuid[16];
    if (nvmlDeviceGetUUID(device, text, sizeof text) != NVML_SUCCESS || !parse_uuid(text, uuid)) return UNKNOWN_PART;
    return part_of_uuid(t, uuid);
}

}  // namespace vgpu

using namespace vgpu;

nvmlReturn_t nvmlInit(void) {
    return init([] { return VGPU_REAL(nvmlInit)(); });
}

nvmlReturn_t nvmlInit_v2(void) {
    return init([] { return VGPU_REAL(nvmlInit_v2)(); });
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    return init([=] { return VGPU_REAL(nvmlInitWithFlags)(flags); });
}

/* Hooked for its return type alone: a library that lacks it must not answer with a number where text is expected. */
const char *nvmlErrorString(nvmlReturn_t result) {
    void *real = real_symbol(NVML, "nvmlErrorString");
    return real ? reinterpret_cast<decltype(&nvmlErrorString)>(real)(result) : "NVML is not available";
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *n) { return count(n, VGPU_REAL(nvmlDeviceGetCount)); }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n) { return count(n, VGPU_REAL(nvmlDeviceGetCount_v2)); }

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return by_index(index, device, VGPU_REAL(nvmlDeviceGetHandleByIndex));
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    return by_index(index, device, VGPU_REAL(nvmlDeviceGetHandleByIndex_v2));
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *text, nvmlDevice_t *device) {
    return found(device, [&] { return VGPU_REAL(nvmlDeviceGetHandleByUUID)(text, device); });
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_v1_t *uuid, nvmlDevice_t *device) {
    return found(device, [&] { return VGPU_REAL(nvmlDeviceGetHandleByUUIDV)(uuid, device); });
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *text, nvmlDevice_t *device) {
    return found(device, [&] { return VGPU_REAL(nvmlDeviceGetHandleBySerial)(text, device); });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device) {
    return found(device, [&] { return VGPU_REAL(nvmlDeviceGetHandleByPciBusId)(text, device); });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device) {
    return found(device, [&] { return VGPU_REAL(nvmlDeviceGetHandleByPciBusId_v2)(text, device); });
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    Tenant *t = managed();
    Guard guard;
    nvmlReturn_t result = VGPU_REAL(nvmlDeviceGetIndex)(device, index);
    int part = part_answered(t, result, device);
    if (part != UNKNOWN_PART) *index = unsigned(part);
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    Tenant *t = managed();
    Guard guard;
    nvmlReturn_t result = VGPU_REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    int part = part_answered(t, result, device);
    if (part == UNKNOWN_PART) return result;
    Snapshot shown = snapshot(*t->page, unsigned(part));
    if (shown.total < memory->total) *memory = {shown.total, shown.total - shown.used, shown.used};
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    Tenant *t = managed();
    Guard guard;
    nvmlReturn_t result = VGPU_REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    int part = part_answered(t, result, device);
    if (part == UNKNOWN_PART) return result;
    Snapshot shown = snapshot(*t->page, unsigned(part));
    /* The driver's reserve lies outside of a tenant's limit: total = used + free. */
    if (shown.total < memory->total) *memory = {memory->version, shown.total, 0, shown.total - shown.used, shown.used};
    return result;
}
