// One connection: reads requests, calls the handlers, writes replies, until the client closes it.
#pragma once
#include <sys/types.h>

#include "machine.h"

namespace vgpu::sim {

// Takes `socket` over. `pid` is the peer's.
void serve(Machine& machine, int socket, pid_t pid);

}  // namespace vgpu::sim
