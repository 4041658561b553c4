// One device: its identity, its books, and readings that follow from its load as hardware's would.
#include <string.h>

#include "client/identity.h"
#include "nvml.h"

namespace vgpu::sim {
namespace {

constexpr unsigned kIdleWatts = 60, kBusyWatts = 400, kLimitWatts = 450;
constexpr unsigned kIdleCelsius = 30, kBusyCelsius = 65;
constexpr unsigned kMegahertz = 1500, kMemoryMegahertz = 2000;

nvmlReturn_t state_of(nvmlDevice_t device, DeviceStateReply& state, uint64_t& total) {
  uint32_t index;
  if (const nvmlReturn_t wrong = device_index(device, index)) return wrong;
  total = devices().device[index].total;
  return result(call(CallId::kDeviceState, 0, DeviceStateRequest{index}, state));
}

nvmlReturn_t reading(nvmlDevice_t device, unsigned idle, unsigned busy, unsigned* value) {
  DeviceStateReply state;
  uint64_t total;
  if (!value) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t wrong = state_of(device, state, total)) return wrong;
  *value = idle + (busy - idle) * state.utilization / 100;
  return NVML_SUCCESS;
}

template <class T>
nvmlReturn_t constant(nvmlDevice_t device, T* value, T what) {
  uint32_t index;
  if (const nvmlReturn_t wrong = device_index(device, index)) return wrong;
  if (!value) return NVML_ERROR_INVALID_ARGUMENT;
  *value = what;
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  uint32_t index;
  if (const nvmlReturn_t wrong = device_index(device, index)) return wrong;
  return put_text(device_name(devices().device[index]).c_str(), name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  uint32_t index;
  if (const nvmlReturn_t wrong = device_index(device, index)) return wrong;
  return put_text(uuid_text(devices().device[index]).c_str(), uuid, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  uint32_t own;
  if (const nvmlReturn_t wrong = device_index(device, own)) return wrong;
  if (!index) return NVML_ERROR_INVALID_ARGUMENT;
  *index = own;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minor) { return nvmlDeviceGetIndex(device, minor); }

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  uint32_t index;
  if (const nvmlReturn_t wrong = device_index(device, index)) return wrong;
  if (!pci) return NVML_ERROR_INVALID_ARGUMENT;
  *pci = {};
  pci->domain = kPciDomain;
  pci->bus = pci_bus(index);
  strcpy(pci->busIdLegacy, pci_bus_id(index, 4).c_str());
  strcpy(pci->busId, pci_bus_id(index, 8).c_str());
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  if (const nvmlReturn_t wrong = constant(device, major, 9)) return wrong;
  return constant(device, minor, 0);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) { return constant(device, mode, NVML_COMPUTEMODE_DEFAULT); }

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) { return constant(device, mode, NVML_FEATURE_DISABLED); }

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int* current, unsigned int* pending) {
  if (const nvmlReturn_t wrong = constant(device, current, 0u)) return wrong;
  return constant(device, pending, 0u);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) { return constant(device, count, 0u); }

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  DeviceStateReply state;
  uint64_t total;
  if (!memory) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t wrong = state_of(device, state, total)) return wrong;
  *memory = {total, total - state.used, state.used};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  DeviceStateReply state;
  uint64_t total;
  if (!memory) return NVML_ERROR_INVALID_ARGUMENT;
  if (memory->version != VGPU_NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (const nvmlReturn_t wrong = state_of(device, state, total)) return wrong;
  *memory = {memory->version, total, 0, total - state.used, state.used};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* rates) {
  DeviceStateReply state;
  uint64_t total;
  if (!rates) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t wrong = state_of(device, state, total)) return wrong;
  *rates = {state.utilization, state.memory_activity};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int* celsius) {
  if (sensor != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  return reading(device, kIdleCelsius, kBusyCelsius, celsius);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* milliwatts) {
  return reading(device, kIdleWatts * 1000, kBusyWatts * 1000, milliwatts);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int* milliwatts) {
  return constant(device, milliwatts, kLimitWatts * 1000);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int* milliwatts) {
  return constant(device, milliwatts, kLimitWatts * 1000);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t clock, unsigned int* megahertz) {
  if (clock > NVML_CLOCK_VIDEO) return NVML_ERROR_INVALID_ARGUMENT;
  return constant(device, megahertz, clock == NVML_CLOCK_MEM ? kMemoryMegahertz : kMegahertz);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t clock, unsigned int* megahertz) {
  return nvmlDeviceGetClockInfo(device, clock, megahertz);
}
