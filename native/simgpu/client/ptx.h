// What a module says of its kernels: PTX text is searched for entries and their parameters, not interpreted.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace vgpu::sim {

struct Parameter {
  uint32_t offset;  // in the kernel's parameter space, bytes
  uint32_t size;
};

struct Entry {
  std::string name;
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes() const { return parameters.empty() ? 0 : parameters.back().offset + parameters.back().size; }
};

// All `.entry` of a PTX text; false when it is none. Layout as the PTX ISA has it: each parameter at its own alignment.
bool parse_ptx(const std::string& text, std::vector<Entry>& entries);

}  // namespace vgpu::sim
