#include "marker.h"

#include "shim.h"

extern "C" VGPU_EXPORT const char VGPU_MARKER[] = "jupyter-vgpu";
