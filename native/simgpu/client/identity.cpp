#include "identity.h"

#include <cstdio>

namespace vgpu::sim {

std::string device_name(const DeviceDescription& device) {
  const uint64_t mib = device.total >> 20;
  const bool whole = mib % 1024 == 0;
  return "Simulated GPU " + std::to_string(whole ? mib / 1024 : mib) + (whole ? " GiB" : " MiB");
}

std::string uuid_text(const DeviceDescription& device) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[3];
    snprintf(digits, sizeof digits, "%02x", device.uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

std::string pci_bus_id(uint32_t index, int domain_digits) {
  char text[32];
  snprintf(text, sizeof text, "%0*X:%02X:00.0", domain_digits, kPciDomain, pci_bus(index));
  return text;
}

int index_of_pci_bus_id(const char* text, uint32_t count) {
  unsigned domain, bus, device, function = 0;
  const int parts = sscanf(text, "%x:%x:%x.%x", &domain, &bus, &device, &function);
  if (parts < 3) {
    domain = 0;
    if (sscanf(text, "%x:%x.%x", &bus, &device, &function) < 2) return -1;
  }
  if (domain != kPciDomain || device != 0 || function != 0 || bus < 1 || bus > count) return -1;
  return int(bus - 1);
}

}  // namespace vgpu::sim
