// Memory, utilization, and sensors that follow it.
#include "client/identity.h"
#include "nvml.h"

namespace vgpu::sim {
namespace {

nvmlReturn_t state(nvmlDevice_t handle, const void* out, DeviceStateReply& reply) {
  if (const nvmlReturn_t wrong = ask<DeviceStateRequest>(handle, CallId::kDeviceState, reply)) return wrong;
  return out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

// A simulated device has no sensors. As a tool's display is only worth a test when it moves, these rise with the utilization of the last
// second, within what a card has between rest and full load.
constexpr int kTemperatureIdle = 30, kTemperatureBusy = 70;      // degrees Celsius
constexpr unsigned int kPowerIdle = 50000, kPowerBusy = 300000;  // milliwatts

int temperature(const DeviceStateReply& now) {
  return kTemperatureIdle + int(now.utilization) * (kTemperatureBusy - kTemperatureIdle) / 100;
}

nvmlReturn_t constant(nvmlDevice_t handle, unsigned int* out, unsigned int value) {
  DeviceDescription device;
  if (const nvmlReturn_t wrong = describe(handle, device)) return wrong;
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  *out = value;
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  DeviceDescription known;
  if (const nvmlReturn_t wrong = describe(device, known)) return wrong;
  DeviceStateReply now;
  if (const nvmlReturn_t wrong = state(device, memory, now)) return wrong;
  *memory = {known.total, known.total - now.used, now.used};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (memory && memory->version != VGPU_NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  nvmlMemory_t first;
  if (const nvmlReturn_t wrong = nvmlDeviceGetMemoryInfo(device, memory ? &first : nullptr)) return wrong;
  // The driver's reserve is 0: a simulated device's total is what programs can have.
  *memory = {memory->version, first.total, 0, first.free, first.used};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  DeviceStateReply now;
  if (const nvmlReturn_t wrong = state(device, utilization, now)) return wrong;
  *utilization = {now.utilization, now.memory_activity};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int* celsius) {
  DeviceStateReply now;
  if (const nvmlReturn_t wrong = state(device, celsius, now)) return wrong;
  if (sensor != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  *celsius = unsigned(temperature(now));
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t* reading) {
  DeviceStateReply now;
  if (const nvmlReturn_t wrong = state(device, reading, now)) return wrong;
  if (reading->version != VGPU_NVML_STRUCT_VERSION(nvmlTemperature_v1_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (reading->sensorType != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  reading->temperature = temperature(now);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* milliwatts) {
  DeviceStateReply now;
  if (const nvmlReturn_t wrong = state(device, milliwatts, now)) return wrong;
  *milliwatts = kPowerIdle + now.utilization * (kPowerBusy - kPowerIdle) / 100;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int* milliwatts) {
  return constant(device, milliwatts, kPowerBusy);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int* milliwatts) {
  return constant(device, milliwatts, kPowerBusy);
}

// The clocks of cuDeviceGetAttribute; they never change.
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t clock, unsigned int* megahertz) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (clock > NVML_CLOCK_VIDEO) return NVML_ERROR_INVALID_ARGUMENT;
  return constant(device, megahertz, unsigned(clock == NVML_CLOCK_MEM ? kMemoryKilohertz : kClockKilohertz) / 1000);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t clock, unsigned int* megahertz) {
  return nvmlDeviceGetClockInfo(device, clock, megahertz);
}
