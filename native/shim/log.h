/* One line on stderr, prefixed "vgpu:", when VGPU_LOG=1. Says why something was denied, waited for, or unmanaged. */
#pragma once

namespace vgpu {

__attribute__((format(printf, 1, 2))) void log(const char *format, ...);

}  // namespace vgpu
