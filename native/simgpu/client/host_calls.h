// Functions of the program that its streams call: the device process says when, a thread of this library calls.
#pragma once
#include <functional>

#include "streams.h"

namespace vgpu::sim {

CUresult launch_host_call(const StreamTarget& target, std::function<void()> function);

}  // namespace vgpu::sim
