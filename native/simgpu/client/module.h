// Modules and libraries, which are one thing here, and their kernels. CUmodule and CUlibrary are a Module's address, CUfunction and
// CUkernel a Function's; an address that is none of ours is an invalid handle, never followed.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "driver.h"
#include "ptx.h"

namespace vgpu::sim {

struct Module;

struct Function {
  Module* module;
  Entry entry;
  Kernel kernel;  // kUnknown: it can be asked about, not launched
};

struct Module {
  uint64_t context;  // 0 for a library, which belongs to none
  std::vector<std::unique_ptr<Function>> functions;
};

// Kept alive for as long as the caller holds it, whatever another thread unloads.
std::shared_ptr<Module> find_module(const void* handle);
std::shared_ptr<Function> find_function(const void* handle);
void forget_modules(uint64_t context);

}  // namespace vgpu::sim
