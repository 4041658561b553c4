// Reads values of VGPU_SIMULATED, one a line; answers each with "context memory memory ...", in bytes, or with "refused".
#include <iostream>
#include <string>

#include "common/spec.h"

int main() {
  std::string text;
  while (std::getline(std::cin, text)) {
    vgpu::sim::Spec spec;
    std::string error;
    if (vgpu::sim::parse_spec(text, spec, error)) {
      std::cout << spec.context_overhead;
      for (const uint64_t bytes : spec.memory) std::cout << ' ' << bytes;
    } else {
      std::cout << "refused";
    }
    std::cout << std::endl;
  }
}
