// This thread's stack of current contexts, by the device process's numbers; 0 is none.
#pragma once
#include <cstdint>

#include "driver.h"

namespace vgpu::sim {

uint64_t current_or_none();
bool has_current();  // whether there is an entry, which may be none
void push_current(uint64_t context);
void pop_current();
void set_current(uint64_t context);

// The current context's device; INVALID_CONTEXT without one.
CUresult current_device(uint32_t& index);

}  // namespace vgpu::sim
