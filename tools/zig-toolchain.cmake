# A CMake toolchain that compiles for glibc 2.28 on any Linux: zig's C and C++ compilers (`pip install ziglang`), which carry the symbol
# versions of every glibc. dlopen and the pthread functions moved into libc.so.6 in 2.34, so what a newer system's compiler links does
# not load on an older one. Used by `make wheel`; an install from source uses the system's compiler.
#
# VGPU_ZIG_PYTHON names the Python that has ziglang; without it, the python3 on the PATH.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)

set(_python python3)
if(DEFINED ENV{VGPU_ZIG_PYTHON})
  set(_python $ENV{VGPU_ZIG_PYTHON})
endif()
execute_process(
  COMMAND ${_python} -c "import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), 'zig'), end='')"
  OUTPUT_VARIABLE _zig
  COMMAND_ERROR_IS_FATAL ANY)

set(_target -target x86_64-linux-gnu.2.28)
set(CMAKE_C_COMPILER ${_zig} cc ${_target})
set(CMAKE_CXX_COMPILER ${_zig} c++ ${_target})

# zig links its C++ runtime statically always, and warns about the options by which gcc is told to.
set(CMAKE_C_FLAGS_INIT -Wno-unused-command-line-argument)
set(CMAKE_CXX_FLAGS_INIT -Wno-unused-command-line-argument)
