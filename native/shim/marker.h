/* A symbol by which one build of the shim knows another, so that it never takes it for the driver. */
#pragma once
#define VGPU_MARKER vgpu_shim_marker
#define VGPU_MARKER_NAME "vgpu_shim_marker"
