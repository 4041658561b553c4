#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <mutex>
#include <string>

#include "client/identity.h"
#include "nvml.h"

namespace vgpu::sim {
namespace {

constexpr const char* kVersion = "580.00.00";  // the simulated driver's, that of its CUDA 13.0
constexpr int kCudaVersion = 13000;

std::mutex mutex;
unsigned users = 0;

}  // namespace

nvmlReturn_t initialized() {
  std::lock_guard<std::mutex> lock(mutex);
  return users && connected() ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t device_index(nvmlDevice_t device, uint32_t& index) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  const uint64_t number = reinterpret_cast<uint64_t>(device);
  if (number == 0 || number > devices().device_count) return NVML_ERROR_INVALID_ARGUMENT;
  index = uint32_t(number - 1);
  return NVML_SUCCESS;
}

nvmlReturn_t result(int32_t status) {
  if (status == 0) return NVML_SUCCESS;
  return status == kUnreachable ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t put_text(const char* text, char* to, unsigned length) {
  if (!to) return NVML_ERROR_INVALID_ARGUMENT;
  if (strlen(text) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  strcpy(to, text);
  return NVML_SUCCESS;
}

}  // namespace vgpu::sim

using namespace vgpu::sim;

nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlInitWithFlags(unsigned int) {
  const char* simulated = getenv("VGPU_SIMULATED");
  if (!simulated || !*simulated || !connect_process()) return NVML_ERROR_DRIVER_NOT_LOADED;
  std::lock_guard<std::mutex> lock(mutex);
  ++users;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!users) return NVML_ERROR_UNINITIALIZED;
  --users;
  return NVML_SUCCESS;
}

const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid argument";
    case NVML_ERROR_NOT_SUPPORTED: return "A simulated device does not do this";
    case NVML_ERROR_NOT_FOUND: return "Not found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "The simulated device process does not start";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function not found";
    case NVML_ERROR_GPU_IS_LOST: return "The simulated device process is gone";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Version of the argument does not match";
    default: return "Unknown error";
  }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* text, unsigned int length) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  return put_text(kVersion, text, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char* text, unsigned int length) {
  return put_text((std::string("13.") + kVersion).c_str(), text, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
  if (!version) return NVML_ERROR_INVALID_ARGUMENT;
  *version = kCudaVersion;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) { return nvmlSystemGetCudaDriverVersion(version); }

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char* name, unsigned int length) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (!name || !length) return NVML_ERROR_INVALID_ARGUMENT;
  FILE* file = fopen(("/proc/" + std::to_string(pid) + "/cmdline").c_str(), "re");
  if (!file) return NVML_ERROR_NOT_FOUND;
  const size_t got = fread(name, 1, length - 1, file);
  fclose(file);
  name[got] = 0;  // the words end with zeros: what remains is the program
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = devices().device_count;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) { return nvmlDeviceGetCount(count); }

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (!device || index >= devices().device_count) return NVML_ERROR_INVALID_ARGUMENT;
  *device = device_handle(index);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) { return nvmlDeviceGetHandleByIndex(index, device); }

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (!uuid || !device) return NVML_ERROR_INVALID_ARGUMENT;
  for (uint32_t i = 0; i < devices().device_count; ++i) {
    if (strcasecmp(uuid_text(devices().device[i]).c_str(), uuid) != 0) continue;
    *device = device_handle(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* device) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (!id || !device) return NVML_ERROR_INVALID_ARGUMENT;
  const int index = index_of_pci_bus_id(id, devices().device_count);
  if (index < 0) return NVML_ERROR_NOT_FOUND;
  *device = device_handle(uint32_t(index));
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) { return nvmlDeviceGetHandleByPciBusId(id, device); }
