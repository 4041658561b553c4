// How a simulated device presents itself, to CUDA and NVML alike.
#pragma once
#include <string>

#include "common/wire.h"

namespace vgpu::sim {

constexpr int kDriverVersion = 13000;  // CUDA 13.0
constexpr int kComputeMajor = 9, kComputeMinor = 0;
constexpr int kClockKilohertz = 1500000, kMemoryKilohertz = 2000000;

std::string device_name(const DeviceDescription& device);   // "Simulated GPU 16 GiB": "Simulated" is what others tell it by
std::string uuid_text(const DeviceDescription& device);     // "GPU-8-4-4-4-12"
constexpr unsigned kPciDomain = 0;
constexpr unsigned pci_bus(uint32_t index) { return index + 1; }
std::string pci_bus_id(uint32_t index, int domain_digits);  // "0000:01:00.0"
// The index in `pci_bus_id`'s text of any number of domain digits; -1 if it names none of `count` devices.
int index_of_pci_bus_id(const char* text, uint32_t count);

}  // namespace vgpu::sim
