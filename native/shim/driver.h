/* The real libraries behind the shim: found at the first call of one of their symbols, never before. */
#pragma once
#include "shim.h"

namespace vgpu {

/* The real function, or null when the library cannot be found or lacks it. Safe from any thread. */
void *real_symbol(Library library, const char *name);

}  // namespace vgpu
