// Which devices there are, and how each presents itself.
#include <string.h>
#include <strings.h>

#include <string>

#include "client/identity.h"
#include "nvml.h"

namespace vgpu::sim {
namespace {

// The first device that `is` accepts (its description and index).
template <class Is>
nvmlReturn_t find(nvmlDevice_t* handle, Is is) {
  HelloReply machine;
  if (const nvmlReturn_t wrong = describe(machine)) return wrong;
  if (!handle) return NVML_ERROR_INVALID_ARGUMENT;
  for (uint32_t index = 0; index < machine.device_count; ++index) {
    if (!is(machine.device[index], index)) continue;
    *handle = handle_of(index);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t put_text(nvmlDevice_t handle, std::string (*text_of)(const DeviceDescription&), char* out, unsigned int length) {
  DeviceDescription device;
  if (const nvmlReturn_t wrong = describe(handle, device)) return wrong;
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  const std::string text = text_of(device);
  if (length <= text.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(out, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

// For what all simulated devices have in common, and for what follows from the index.
template <class Value>
nvmlReturn_t put_value(nvmlDevice_t handle, Value* out, Value value) {
  DeviceDescription device;
  if (const nvmlReturn_t wrong = describe(handle, device)) return wrong;
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  *out = value;
  return NVML_SUCCESS;
}

nvmlReturn_t put_index(nvmlDevice_t handle, unsigned int* out) {
  DeviceDescription device;
  if (const nvmlReturn_t wrong = describe(handle, device)) return wrong;
  return put_value(handle, out, handle->index);
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) {
  HelloReply machine;
  if (const nvmlReturn_t wrong = describe(machine)) return wrong;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = machine.device_count;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) { return nvmlDeviceGetCount(count); }

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int wanted, nvmlDevice_t* device) {
  const nvmlReturn_t result = find(device, [&](const DeviceDescription&, uint32_t index) { return index == wanted; });
  return result == NVML_ERROR_NOT_FOUND ? NVML_ERROR_INVALID_ARGUMENT : result;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) { return nvmlDeviceGetHandleByIndex(index, device); }

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (!uuid) return NVML_ERROR_INVALID_ARGUMENT;
  return find(device, [&](const DeviceDescription& one, uint32_t) { return strcasecmp(uuid_text(one).c_str(), uuid) == 0; });
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_v1_t* uuid, nvmlDevice_t* device) {
  constexpr unsigned int text = 1, binary = 2;
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (!uuid) return NVML_ERROR_INVALID_ARGUMENT;
  if (uuid->version != VGPU_NVML_STRUCT_VERSION(nvmlUUID_v1_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (uuid->type == text) {
    const char* written = uuid->value.str;
    return nvmlDeviceGetHandleByUUID(std::string(written, strnlen(written, sizeof uuid->value.str)).c_str(), device);
  }
  if (uuid->type != binary) return NVML_ERROR_INVALID_ARGUMENT;
  return find(device, [&](const DeviceDescription& one, uint32_t) { return memcmp(one.uuid, uuid->value.bytes, sizeof one.uuid) == 0; });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* device) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (!id) return NVML_ERROR_INVALID_ARGUMENT;
  return find(device, [&](const DeviceDescription&, uint32_t index) { return index_of_pci_bus_id(id, index + 1) == int(index); });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) { return nvmlDeviceGetHandleByPciBusId(id, device); }

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  return put_text(device, device_name, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) { return put_text(device, uuid_text, uuid, length); }

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) { return put_index(device, index); }
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minor) { return put_index(device, minor); }

// Vendor and device id are 0: no such card is on any bus.
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  DeviceDescription known;
  if (const nvmlReturn_t wrong = describe(device, known)) return wrong;
  if (!pci) return NVML_ERROR_INVALID_ARGUMENT;
  *pci = {};
  pci->domain = kPciDomain;
  pci->bus = pci_bus(device->index);
  strncpy(pci->busIdLegacy, pci_bus_id(device->index, 4).c_str(), sizeof pci->busIdLegacy - 1);
  strncpy(pci->busId, pci_bus_id(device->index, 8).c_str(), sizeof pci->busId - 1);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  if (const nvmlReturn_t wrong = put_value(device, major, kComputeMajor)) return wrong;
  return put_value(device, minor, kComputeMinor);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  return put_value(device, mode, NVML_COMPUTEMODE_DEFAULT);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return put_value(device, mode, NVML_FEATURE_DISABLED);
}

// A simulated device cannot be divided into MIG instances.
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int* current, unsigned int* pending) {
  if (const nvmlReturn_t wrong = put_value(device, current, 0u)) return wrong;
  return put_value(device, pending, 0u);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int* is) { return put_value(device, is, 0u); }
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) { return put_value(device, count, 0u); }
