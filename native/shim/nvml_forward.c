/* libnvidia-ml.so.1 as a tenant sees it: no code. It needs libcuda.so.1, the shim, and a symbol looked up in this library's handle is
 * found there: one library holds both APIs' hooks and one state. */
typedef int vgpu_no_code;
