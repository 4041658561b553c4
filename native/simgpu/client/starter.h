// Finds the device process or starts it: `vgpu-simgpu`, beside this library's file.
#pragma once

namespace vgpu::sim {

// A connected socket (close-on-exec), or -1 with a line on stderr that says what is wrong.
int connect_to_device_process();

}  // namespace vgpu::sim
