// cuGetProcAddress, the per-thread-stream variants and the errors' names.
#include <string.h>

#include <algorithm>

#include "driver.h"
#include "streams.h"

#define VGPU_SIM_FUNCTION(symbol, name, since, parameters)
#define VGPU_SIM_STREAM(symbol, suffix, name, since, parameters, arguments) \
  CUresult symbol##suffix parameters {                                      \
    vgpu::sim::PerThreadDefault scope;                                      \
    return symbol arguments;                                                \
  }
#include "functions.def"

namespace vgpu::sim {
namespace {

struct Symbol {
  const char* name;
  int since;
  void* function;
  void* per_thread;  // nullptr where there is but one
};

const Symbol symbols[] = {
#define VGPU_SIM_FUNCTION(symbol, name, since, parameters) {#name, since, reinterpret_cast<void*>(&::symbol), nullptr},
#define VGPU_SIM_STREAM(symbol, suffix, name, since, parameters, arguments) \
  {#name, since, reinterpret_cast<void*>(&::symbol), reinterpret_cast<void*>(&::symbol##suffix)},
#include "functions.def"
};

constexpr int kPerThreadSince = 7000;

struct Error {
  CUresult code;
  const char* name;
  const char* text;
};

const Error errors[] = {
#define VGPU_SIM_ERROR(code, text) {code, #code, text},
    VGPU_SIM_ERROR(CUDA_SUCCESS, "no error")
    VGPU_SIM_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument")
    VGPU_SIM_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")
    VGPU_SIM_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error")
    VGPU_SIM_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down")
    VGPU_SIM_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "the simulated device process is gone")
    VGPU_SIM_ERROR(CUDA_ERROR_NO_DEVICE, "no simulated device is visible")
    VGPU_SIM_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")
    VGPU_SIM_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")
    VGPU_SIM_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "machine code does not run on a simulated device")
    VGPU_SIM_ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported")
    VGPU_SIM_ERROR(CUDA_ERROR_INVALID_PTX, "not a PTX text")
    VGPU_SIM_ERROR(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "a simulated device cannot be divided")
    VGPU_SIM_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found")
    VGPU_SIM_ERROR(CUDA_ERROR_OPERATING_SYSTEM, "the operating system refused a call")
    VGPU_SIM_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")
    VGPU_SIM_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found")
    VGPU_SIM_ERROR(CUDA_ERROR_NOT_READY, "device not ready")
    VGPU_SIM_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")
    VGPU_SIM_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "the primary context is in use")
    VGPU_SIM_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")
    VGPU_SIM_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the memory is registered already")
    VGPU_SIM_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "the memory is not registered")
    VGPU_SIM_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address")
    VGPU_SIM_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")
    VGPU_SIM_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")
    VGPU_SIM_ERROR(CUDA_ERROR_NOT_SUPPORTED, "a simulated device does not do this")
    VGPU_SIM_ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "the simulated device process does not start")
    VGPU_SIM_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "the simulated device process is of another version")
    VGPU_SIM_ERROR(CUDA_ERROR_UNKNOWN, "unknown error")
#undef VGPU_SIM_ERROR
};

const Error* find(CUresult code) {
  for (const Error& error : errors)
    if (error.code == code) return &error;
  return nullptr;
}

// The newest that a caller of this version knows.
CUdriverProcAddressQueryResult look_up(const char* name, int version, cuuint64_t flags, void*& function) {
  const bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  CUdriverProcAddressQueryResult outcome = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  int newest = 0;
  function = nullptr;
  for (const Symbol& symbol : symbols) {
    if (strcmp(symbol.name, name) != 0) continue;
    if (outcome == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) outcome = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    const int since = per_thread && symbol.per_thread ? std::max(symbol.since, kPerThreadSince) : symbol.since;
    if (since > version || since < newest) continue;
    newest = since;
    function = per_thread && symbol.per_thread ? symbol.per_thread : symbol.function;
    outcome = CU_GET_PROC_ADDRESS_SUCCESS;
  }
  return outcome;
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

// The first version has no other way to say that there is none.
CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  const CUresult outcome = cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
  return outcome == CUDA_SUCCESS && !*function ? CUDA_ERROR_NOT_FOUND : outcome;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (!symbol || !function || flags & ~known || flags == known || version > kDriverVersion) return CUDA_ERROR_INVALID_VALUE;
  const CUdriverProcAddressQueryResult outcome = look_up(symbol, version, flags, *function);
  if (status) *status = outcome;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  if (!text) return CUDA_ERROR_INVALID_VALUE;
  const Error* found = find(error);
  *text = found ? found->name : nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  if (!text) return CUDA_ERROR_INVALID_VALUE;
  const Error* found = find(error);
  *text = found ? found->text : nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
