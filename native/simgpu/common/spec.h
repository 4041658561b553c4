// VGPU_SIMULATED, as written by a user: which simulated devices there are.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace vgpu::sim {

struct Spec {
  std::vector<uint64_t> memory;                // bytes, one a device
  uint64_t context_overhead = 300ull << 20;    // bytes charged to each process with a context on a device
};

// Parses `2x16GiB`, `16GiB`, `16GiB,8GiB` (unequal devices), each with options behind it: `,context=300MiB`.
// On bad input returns false and sets `error` to a sentence that names what came and what is allowed; `spec` is unchanged then.
bool parse_spec(const std::string& text, Spec& spec, std::string& error);

// The device process's socket: VGPU_SIMGPU_SOCKET, else one per user and spec, in the same place as the arbiter's
// (docs/architecture.md, "The arbiter's directory").
std::string socket_path(const std::string& spec_text);

}  // namespace vgpu::sim
