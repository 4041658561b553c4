#include "spec.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "wire.h"

namespace vgpu::sim {
namespace {

bool parse_size(const std::string& text, uint64_t& bytes) {
  size_t digits = 0;
  while (digits < text.size() && isdigit(static_cast<unsigned char>(text[digits]))) digits++;
  if (digits == 0 || digits > 12) return false;
  uint64_t value = std::strtoull(text.c_str(), nullptr, 10);
  const std::string unit = text.substr(digits);
  int shift;
  if (unit == "TiB") shift = 40;
  else if (unit == "GiB") shift = 30;
  else if (unit == "MiB") shift = 20;
  else return false;
  if (value > (uint64_t{1} << 44) >> shift) return false;
  bytes = value << shift;
  return true;
}

std::string refuse(const std::string& part, const std::string& allowed) {
  return "VGPU_SIMULATED: \"" + part + "\" is not " + allowed + "; an example: 2x16GiB,context=300MiB";
}

}  // namespace

bool parse_spec(const std::string& text, Spec& spec, std::string& error) {
  Spec parsed;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    if (part.compare(0, 8, "context=") == 0) {
      if (!parse_size(part.substr(8), parsed.context_overhead)) {
        error = refuse(part, "context=SIZE with a size in MiB or GiB");
        return false;
      }
      continue;
    }
    uint64_t count = 1, bytes = 0;
    std::string size = part;
    if (const size_t x = part.find('x'); x != std::string::npos) {
      const std::string number = part.substr(0, x);
      if (number.empty() || number.size() > 2 || number.find_first_not_of("0123456789") != std::string::npos) {
        error = refuse(part, "COUNTxSIZE");
        return false;
      }
      count = std::strtoull(number.c_str(), nullptr, 10);
      size = part.substr(x + 1);
    }
    if (!parse_size(size, bytes) || bytes == 0 || bytes % kGranularity) {
      error = refuse(part, "a device's memory: a size in MiB, GiB or TiB, a multiple of 2MiB, at most 16TiB");
      return false;
    }
    if (count == 0 || parsed.memory.size() + count > kMaxDevices) {
      error = refuse(part, "within 1 to " + std::to_string(kMaxDevices) + " devices");
      return false;
    }
    parsed.memory.insert(parsed.memory.end(), count, bytes);
  }
  if (parsed.memory.empty()) {
    error = refuse(text, "a list with at least one device");
    return false;
  }
  spec = std::move(parsed);
  return true;
}

std::string socket_path(const std::string& spec_text) {
  if (const char* path = std::getenv("VGPU_SIMGPU_SOCKET"); path && *path) return path;
  std::string directory;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime) directory = std::string(runtime) + "/jupyter-vgpu";
  else directory = "/tmp/jupyter-vgpu-" + std::to_string(getuid());
  return directory + "/simulated-" + spec_text + "/gpu.sock";
}

}  // namespace vgpu::sim
