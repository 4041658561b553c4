#include "module.h"

#include <stdio.h>
#include <string.h>

#include <map>
#include <mutex>

namespace vgpu::sim {
namespace {

struct Signature {
  Kernel kernel;
  const char* name;
  std::vector<uint32_t> sizes;
};

// The kernels of wire.h. One of that name with other parameters is another kernel.
Kernel kernel_of(const Entry& entry) {
  static const std::vector<Signature>& known = *new std::vector<Signature>{
      {Kernel::kFill, "fill", {8, 4, 4}},       {Kernel::kSaxpy, "saxpy", {4, 8, 8, 4}}, {Kernel::kAdd, "add", {8, 8, 8, 4}},
      {Kernel::kScale, "scale", {4, 8, 4}},     {Kernel::kSpin, "spin", {4}},
  };
  for (const Signature& signature : known) {
    if (entry.name != signature.name || entry.parameters.size() != signature.sizes.size()) continue;
    bool same = true;
    for (size_t i = 0; i < signature.sizes.size(); ++i) same = same && entry.parameters[i].size == signature.sizes[i];
    if (same) return signature.kernel;
  }
  return Kernel::kUnknown;
}

struct Registry {
  std::mutex mutex;
  std::map<const void*, std::shared_ptr<Module>> modules;
  std::map<const void*, std::shared_ptr<Module>> functions;  // a function's address -> who owns it
};

Registry& registry() {  // never destroyed: threads may outlive main
  static Registry* it = new Registry;
  return *it;
}

// Under the mutex.
void erase(std::map<const void*, std::shared_ptr<Module>>::iterator module) {
  for (const auto& function : module->second->functions) registry().functions.erase(function.get());
  registry().modules.erase(module);
}

CUresult load(const void* image, uint64_t context, Module*& loaded) {
  if (!image) return CUDA_ERROR_INVALID_VALUE;
  const unsigned char* bytes = static_cast<const unsigned char*>(image);
  static const unsigned char elf[] = {0x7f, 'E', 'L', 'F'}, fatbin[] = {0x50, 0xed, 0x55, 0xba}, wrapper[] = {0xb1, 0x43, 0x62, 0x46};
  for (const unsigned char* magic : {elf, fatbin, wrapper})
    if (strncmp(reinterpret_cast<const char*>(bytes), reinterpret_cast<const char*>(magic), sizeof elf) == 0)
      return CUDA_ERROR_NO_BINARY_FOR_GPU;  // machine code of real GPUs
  std::vector<Entry> entries;
  if (!parse_ptx(static_cast<const char*>(image), entries)) return CUDA_ERROR_INVALID_PTX;
  auto module = std::make_shared<Module>();
  module->context = context;
  for (Entry& entry : entries) {
    const Kernel kernel = kernel_of(entry);
    module->functions.push_back(std::make_unique<Function>(Function{module.get(), std::move(entry), kernel}));
  }
  loaded = module.get();
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (const auto& function : module->functions) registry().functions[function.get()] = module;
  registry().modules[module.get()] = module;
  return CUDA_SUCCESS;
}

CUresult load_file(const char* file, uint64_t context, Module*& loaded) {
  if (!file) return CUDA_ERROR_INVALID_VALUE;
  FILE* opened = fopen(file, "rbe");
  if (!opened) return CUDA_ERROR_FILE_NOT_FOUND;
  std::string image;
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, opened)) > 0;) image.append(buffer, got);
  fclose(opened);
  return load(image.c_str(), context, loaded);
}

CUresult unload(const void* handle) {
  if (const CUresult wrong = initialized()) return wrong;
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = registry().modules.find(handle);
  if (found == registry().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  erase(found);
  return CUDA_SUCCESS;
}

CUresult function_named(const void* handle, const char* name, Function*& function) {
  if (const CUresult wrong = initialized()) return wrong;
  const auto module = find_module(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& candidate : module->functions) {
    if (candidate->entry.name != name) continue;
    function = candidate.get();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace

std::shared_ptr<Module> find_module(const void* handle) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = registry().modules.find(handle);
  return found == registry().modules.end() ? nullptr : found->second;
}

std::shared_ptr<Function> find_function(const void* handle) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = registry().functions.find(handle);
  if (found == registry().functions.end()) return nullptr;
  return {found->second, static_cast<Function*>(const_cast<void*>(handle))};
}

void forget_modules(uint64_t context) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (auto module = registry().modules.begin(); module != registry().modules.end();) {
    const auto next = std::next(module);
    if (module->second->context == context) erase(module);
    module = next;
  }
}

}  // namespace vgpu::sim

using namespace vgpu::sim;

CUresult cuModuleLoadData(CUmodule* module, const void* image) { return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr); }

// The options are about a compilation that does not take place; their logs stay as they are.
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*, void**) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  Module* loaded;
  if (const CUresult wrong = load(image, context, loaded)) return wrong;
  *module = handle<CUmodule>(number(loaded));
  return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule* module, const char* file) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  Module* loaded;
  if (const CUresult wrong = load_file(file, context, loaded)) return wrong;
  *module = handle<CUmodule>(number(loaded));
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) { return unload(module); }

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  Function* found;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult wrong = function_named(module, name, found)) return wrong;
  *function = handle<CUfunction>(number(found));
  return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (const CUresult wrong = initialized()) return wrong;
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**, unsigned int, CUlibraryOption*, void**,
                           unsigned int) {
  if (const CUresult wrong = initialized()) return wrong;
  if (!library) return CUDA_ERROR_INVALID_VALUE;
  Module* loaded;
  if (const CUresult wrong = load(image, 0, loaded)) return wrong;
  *library = handle<CUlibrary>(number(loaded));
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* file, CUjit_option*, void**, unsigned int, CUlibraryOption*, void**,
                               unsigned int) {
  if (const CUresult wrong = initialized()) return wrong;
  if (!library) return CUDA_ERROR_INVALID_VALUE;
  Module* loaded;
  if (const CUresult wrong = load_file(file, 0, loaded)) return wrong;
  *library = handle<CUlibrary>(number(loaded));
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) { return unload(library); }

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  Function* found;
  if (!kernel) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult wrong = function_named(library, name, found)) return wrong;
  *kernel = handle<CUkernel>(number(found));
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary library) {
  if (const CUresult wrong = initialized()) return wrong;
  const auto module = find_module(library);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = unsigned(module->functions.size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count, CUlibrary library) {
  if (const CUresult wrong = initialized()) return wrong;
  const auto module = find_module(library);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (!kernels) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count && i < module->functions.size(); ++i) kernels[i] = handle<CUkernel>(number(module->functions[i].get()));
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  uint64_t context;
  if (const CUresult wrong = current(context)) return wrong;
  if (!find_module(library)) return CUDA_ERROR_INVALID_HANDLE;
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  *module = handle<CUmodule>(number(library));
  return CUDA_SUCCESS;
}
