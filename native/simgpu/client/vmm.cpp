// Virtual memory management: addresses, physical memory and the mappings between them.
#include <vector>

#include "driver.h"

namespace vgpu::sim {
namespace {

CUresult check(const CUmemAllocationProp* properties, uint32_t& index) {
  if (const CUresult wrong = initialized()) return wrong;
  if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  // Host memory behind device addresses, and descriptors of other systems.
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  return device_index(properties->location.id, index);
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
  if (!address || flags) return CUDA_ERROR_INVALID_VALUE;
  ReserveReply reserved;
  if (const CUresult wrong = ask_anywhere(CallId::kReserve, ReserveRequest{size, alignment, hint}, reserved)) return wrong;
  *address = reserved.address;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  return ask_anywhere(CallId::kReserveFree, ReserveFreeRequest{address, size});
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties, unsigned long long flags) {
  uint32_t index;
  if (const CUresult wrong = check(properties, index)) return wrong;
  if (!handle || flags) return CUDA_ERROR_INVALID_VALUE;
  CreateReply created;
  const CreateRequest request{size, index, uint32_t(properties->requestedHandleTypes)};
  if (const CUresult wrong = ask_anywhere(CallId::kCreate, request, created)) return wrong;
  *handle = created.handle;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { return ask_anywhere(CallId::kRelease, ReleaseRequest{handle}); }

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  return ask_anywhere(CallId::kMap, MapRequest{address, size, offset, handle});
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) { return ask_anywhere(CallId::kUnmap, UnmapRequest{address, size}); }

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* access, size_t count) {
  if (const CUresult wrong = initialized()) return wrong;
  if (!access || count == 0 || count > kMaxDevices) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Access> wanted;
  for (size_t i = 0; i < count; ++i) {
    uint32_t index;
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (const CUresult wrong = device_index(access[i].location.id, index)) return wrong;
    wanted.push_back({index, uint32_t(access[i].flags)});
  }
  Nothing nothing;
  return ask_anywhere(CallId::kSetAccess, SetAccessRequest{address, size}, nothing, Bytes{wanted.data(), wanted.size() * sizeof(Access)});
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  uint32_t index;
  if (const CUresult wrong = device_index(location->id, index)) return wrong;
  GetAccessReply access;
  if (const CUresult wrong = ask_anywhere(CallId::kGetAccess, GetAccessRequest{address, index, 0}, access)) return wrong;
  *flags = access.flags;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
  uint32_t index;
  if (const CUresult wrong = check(properties, index)) return wrong;
  if (!granularity || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  HandleStateReply state;
  if (!properties) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult wrong = ask_anywhere(CallId::kHandleState, HandleStateRequest{handle}, state)) return wrong;
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->requestedHandleTypes = CUmemAllocationHandleType(state.handle_types);
  properties->location = {CU_MEM_LOCATION_TYPE_DEVICE, device_ordinal(state.device)};
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  HandleOfReply found;
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult wrong = ask_anywhere(CallId::kHandleOf, HandleOfRequest{number(address)}, found)) return wrong;
  *handle = found.handle;
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
  if (!shareable || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  Nothing nothing;
  int descriptor = -1;
  if (const CUresult wrong = ask_anywhere(CallId::kExport, ExportRequest{handle}, nothing, Bytes{}, nullptr, -1, &descriptor)) return wrong;
  *static_cast<int*>(shareable) = descriptor;
  return CUDA_SUCCESS;
}

// The descriptor is passed in the pointer itself, as the driver API has it, and stays the caller's.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable, CUmemAllocationHandleType type) {
  if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  ImportReply imported;
  const int descriptor = int(number(shareable));
  if (const CUresult wrong = ask_anywhere(CallId::kImport, ImportRequest{}, imported, Bytes{}, nullptr, descriptor)) return wrong;
  *handle = imported.handle;
  return CUDA_SUCCESS;
}
