// cuInit, which devices the program sees, and each thread's stack of current contexts.
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "contexts.h"
#include "driver.h"
#include "identity.h"

namespace vgpu::sim {
namespace {

std::mutex initialising;
std::atomic<bool> is_initialized{false};
std::vector<uint32_t> visible;  // written once, before is_initialized

// One entry of CUDA_VISIBLE_DEVICES as a device's index; -1 ends the list, as an invalid entry does for the driver.
int entry(const std::string& text) {
  const HelloReply& all = devices();
  if (text.empty()) return -1;
  if (text.find_first_not_of("0123456789") == std::string::npos) {
    const unsigned long index = strtoul(text.c_str(), nullptr, 10);
    return index < all.device_count ? int(index) : -1;
  }
  if (text.size() <= strlen("GPU-")) return -1;
  int found = -1;
  for (uint32_t i = 0; i < all.device_count; ++i) {
    if (strncasecmp(uuid_text(all.device[i]).c_str(), text.c_str(), text.size()) != 0) continue;
    if (found >= 0) return -1;  // an ambiguous prefix names none
    found = int(i);
  }
  return found;
}

std::vector<uint32_t> read_visible_devices() {
  std::vector<uint32_t> result;
  const char* value = getenv("CUDA_VISIBLE_DEVICES");
  if (!value) {
    for (uint32_t i = 0; i < devices().device_count; ++i) result.push_back(i);
    return result;
  }
  const std::string list = value;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string text = list.substr(begin, end - begin);
    text.erase(0, text.find_first_not_of(" \t"));
    text.erase(text.find_last_not_of(" \t") + 1);
    const int index = entry(text);
    if (index < 0 || std::find(result.begin(), result.end(), uint32_t(index)) != result.end()) break;
    result.push_back(uint32_t(index));
    begin = end + 1;
  }
  return result;
}

thread_local std::vector<uint64_t> stack;

}  // namespace

CUresult result(int32_t status) { return status == kUnreachable ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUresult(status); }

CUresult initialized() {
  return is_initialized.load(std::memory_order_acquire) && connected() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult current(uint64_t& context) {
  if (const CUresult wrong = initialized()) return wrong;
  context = current_or_none();
  return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

uint64_t current_or_none() { return stack.empty() ? 0 : stack.back(); }
void push_current(uint64_t context) { stack.push_back(context); }
void pop_current() { stack.pop_back(); }
bool has_current() { return !stack.empty(); }
void set_current(uint64_t context) {
  if (!stack.empty()) stack.pop_back();
  if (context || !stack.empty()) stack.push_back(context);
}

int device_count() { return int(visible.size()); }

CUresult device_index(CUdevice device, uint32_t& index) {
  if (const CUresult wrong = initialized()) return wrong;
  if (device < 0 || size_t(device) >= visible.size()) return CUDA_ERROR_INVALID_DEVICE;
  index = visible[size_t(device)];
  return CUDA_SUCCESS;
}

CUdevice device_ordinal(uint32_t index) {
  const auto found = std::find(visible.begin(), visible.end(), index);
  return found == visible.end() ? -1 : CUdevice(found - visible.begin());
}

const DeviceDescription& describe(uint32_t index) { return devices().device[index]; }

}  // namespace vgpu::sim

using namespace vgpu::sim;

CUresult cuInit(unsigned int flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard<std::mutex> lock(initialising);
  if (is_initialized.load()) return CUDA_SUCCESS;
  const char* simulated = getenv("VGPU_SIMULATED");
  if (!simulated || !*simulated) return CUDA_ERROR_NO_DEVICE;
  if (!connect_process()) return CUDA_ERROR_SYSTEM_NOT_READY;
  visible = read_visible_devices();
  if (visible.empty()) return CUDA_ERROR_NO_DEVICE;
  is_initialized.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}
