// What NVML says of the machine as a whole, and its errors' texts.
#include <stdio.h>
#include <string.h>

#include <string>

#include "client/identity.h"
#include "nvml.h"

namespace vgpu::sim {
namespace {

// The driver branch that came with kDriverVersion; tools compare its first number.
constexpr char kDriverRelease[] = "580.00";
constexpr char kNvmlRelease[] = "13.580.00";

nvmlReturn_t put(const std::string& text, char* out, unsigned int length) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  if (length <= text.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(out, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) { return put(kDriverRelease, version, length); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) { return put(kNvmlRelease, version, length); }

// NVML answers these two without having been initialised.
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
  if (!version) return NVML_ERROR_INVALID_ARGUMENT;
  *version = kDriverVersion;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) { return nvmlSystemGetCudaDriverVersion(version); }

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char* name, unsigned int length) {
  if (const nvmlReturn_t wrong = initialized()) return wrong;
  if (!name || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  FILE* file = fopen(("/proc/" + std::to_string(pid) + "/cmdline").c_str(), "re");
  if (!file) return NVML_ERROR_NOT_FOUND;
  const size_t read = fread(name, 1, length - 1, file);
  fclose(file);
  name[read] = 0;  // the program's name ends at its first zero, before its arguments
  return NVML_SUCCESS;
}

const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS: return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_ALREADY_INITIALIZED: return "Already Initialized";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_INSUFFICIENT_POWER: return "Insufficient External Power";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_IRQ_ISSUE: return "Interrupt Request Issue";
    case NVML_ERROR_LIBRARY_NOT_FOUND: return "NVML Shared Library Not Found";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
    case NVML_ERROR_CORRUPTED_INFOROM: return "Corrupted infoROM";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
    case NVML_ERROR_OPERATING_SYSTEM: return "Blocked by the operating system";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "RM has detected an NVML/RM version mismatch";
    case NVML_ERROR_IN_USE: return "In use by another client";
    case NVML_ERROR_MEMORY: return "Insufficient memory";
    case NVML_ERROR_NO_DATA: return "No data";
    case NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: return "The operation needs vGPU without ECC";
    case NVML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient resources";
    case NVML_ERROR_FREQ_NOT_SUPPORTED: return "Frequency not supported";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    case NVML_ERROR_DEPRECATED: return "Deprecated";
    case NVML_ERROR_NOT_READY: return "Not ready";
    case NVML_ERROR_GPU_NOT_FOUND: return "No GPU found";
    case NVML_ERROR_INVALID_STATE: return "Invalid state";
    case NVML_ERROR_RESET_TYPE_NOT_SUPPORTED: return "This type of reset is not supported";
    case NVML_ERROR_UNKNOWN: break;
  }
  return "Unknown Error";
}
