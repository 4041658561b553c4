// Copies and fills. Memory that the device process does not see travels in the socket (small, and so asynchronous) or through the
// connection's staging memory; copies between addresses that it sees are made there.
#include <string.h>

#include <algorithm>

#include "driver.h"
#include "host_memory.h"
#include "streams.h"

namespace vgpu::sim {
namespace {

enum class When { kSynchronous, kAsynchronous };

// A rectangle in host memory or at device addresses; `device` says which.
struct Side {
  uint64_t address;
  uint64_t pitch;
  bool device;
};

struct Shape {
  uint64_t width, height;
};

void pack(char* to, const Side& from, Shape shape) {
  for (uint64_t row = 0; row < shape.height; ++row)
    memcpy(to + row * shape.width, reinterpret_cast<const char*>(from.address) + row * from.pitch, shape.width);
}

void unpack(const Side& to, const char* from, Shape shape) {
  for (uint64_t row = 0; row < shape.height; ++row)
    memcpy(reinterpret_cast<char*>(to.address) + row * to.pitch, from + row * shape.width, shape.width);
}

CUresult copy_in_piece(Lease& lease, const StreamTarget& target, const Side& to, const Side& from, Shape shape) {
  const uint64_t bytes = shape.width * shape.height;
  const bool staged = bytes > kInlineLimit;
  const CopyInRequest request{{to.address, to.pitch}, shape.width, shape.height, target.stream, staged, 0};
  Nothing nothing;
  std::vector<char> packed;
  Bytes in;
  if (staged) {
    pack(lease->staging(), from, shape);
  } else if (shape.height == 1) {
    in = {reinterpret_cast<const void*>(from.address), bytes};
  } else {
    packed.resize(bytes);
    pack(packed.data(), from, shape);
    in = {packed.data(), bytes};
  }
  return result(lease->call(CallId::kCopyIn, target.context, &request, sizeof request, &nothing, sizeof nothing, in));
}

CUresult copy_out_piece(Lease& lease, const StreamTarget& target, const Side& to, const Side& from, Shape shape) {
  const bool staged = shape.width * shape.height > kInlineLimit;
  const CopyOutRequest request{{from.address, from.pitch}, shape.width, shape.height, target.stream, staged, 0};
  Nothing nothing;
  std::vector<char> packed;
  const CUresult outcome =
      result(lease->call(CallId::kCopyOut, target.context, &request, sizeof request, &nothing, sizeof nothing, {}, &packed));
  if (outcome != CUDA_SUCCESS) return outcome;
  unpack(to, staged ? lease->staging() : packed.data(), shape);
  return CUDA_SUCCESS;
}

// Cuts the rectangle into pieces that fit into staging memory: as many whole rows as possible, else parts of a row.
template <class Piece>
CUresult in_pieces(Side to, Side from, Shape shape, Piece piece) {
  const uint64_t width = std::min<uint64_t>(shape.width, kStagingSize);
  const uint64_t height = width == shape.width ? std::max<uint64_t>(1, kStagingSize / width) : 1;
  for (uint64_t row = 0; row < shape.height; row += height) {
    for (uint64_t column = 0; column < shape.width; column += width) {
      const Shape part{std::min(width, shape.width - column), std::min(height, shape.height - row)};
      const Side part_to{to.address + row * to.pitch + column, to.pitch, to.device};
      const Side part_from{from.address + row * from.pitch + column, from.pitch, from.device};
      if (const CUresult wrong = piece(part_to, part_from, part)) return wrong;
    }
  }
  return CUDA_SUCCESS;
}

CUresult copy(const Side& to, const Side& from, Shape shape, CUstream stream, When when) {
  StreamTarget target;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  if (shape.width == 0 || shape.height == 0) return CUDA_SUCCESS;
  if (shape.height > 1 && (to.pitch < shape.width || from.pitch < shape.width)) return CUDA_ERROR_INVALID_VALUE;
  if ((!to.device && to.address == 0) || (!from.device && from.address == 0)) return CUDA_ERROR_INVALID_VALUE;
  if (to.device && from.device) {
    const CopyDeviceRequest request{{to.address, to.pitch}, {from.address, from.pitch}, shape.width, shape.height, target.stream};
    Nothing nothing;
    return result(call(CallId::kCopyDevice, target.context, request, nothing));
  }
  Nothing nothing;
  const StreamSynchronizeRequest wait{target.stream};
  if (!to.device && !from.device) {  // a host function of the stream, as it were, that is waited for
    if (const CUresult wrong = result(call(CallId::kStreamSynchronize, target.context, wait, nothing))) return wrong;
    for (uint64_t row = 0; row < shape.height; ++row)
      memmove(reinterpret_cast<char*>(to.address) + row * to.pitch, reinterpret_cast<const char*>(from.address) + row * from.pitch,
              shape.width);
    return CUDA_SUCCESS;
  }
  Lease lease;
  if (!lease) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (!to.device)
    return in_pieces(to, from, shape, [&](const Side& part_to, const Side& part_from, Shape part) {
      return copy_out_piece(lease, target, part_to, part_from, part);
    });
  const CUresult outcome = in_pieces(to, from, shape, [&](const Side& part_to, const Side& part_from, Shape part) {
    return copy_in_piece(lease, target, part_to, part_from, part);
  });
  if (outcome != CUDA_SUCCESS || when == When::kAsynchronous) return outcome;
  return result(call(CallId::kStreamSynchronize, target.context, wait, nothing));
}

Side device_side(CUdeviceptr address, uint64_t pitch) { return {address, pitch, true}; }

// Host memory that the device process sees is copied there only in asynchronous copies: waiting is all that a synchronous one would gain.
Side host_side(const void* address, uint64_t pitch, When when) {
  return {number(address), pitch, when == When::kAsynchronous && seen_by_device(number(address))};
}

Side unified_side(CUdeviceptr address, uint64_t pitch, When when) {
  return is_device_address(address) ? device_side(address, pitch) : host_side(handle<void*>(address), pitch, when);
}

// One side of a 2D or 3D copy; false for arrays and for types that are none.
bool side(CUmemorytype type, const void* host, CUdeviceptr device, uint64_t pitch, When when, Side& side) {
  switch (type) {
    case CU_MEMORYTYPE_HOST: side = host_side(host, pitch, when); return true;
    case CU_MEMORYTYPE_DEVICE: side = unified_side(device, pitch, When::kAsynchronous); return true;
    case CU_MEMORYTYPE_UNIFIED: side = unified_side(device, pitch, when); return true;
    default: return false;
  }
}

CUresult copy_2d(const CUDA_MEMCPY2D* copy_of, CUstream stream, When when) {
  if (!copy_of) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY2D& c = *copy_of;
  if (c.srcMemoryType == CU_MEMORYTYPE_ARRAY || c.dstMemoryType == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  Side to, from;
  if (!side(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstPitch, when, to)) return CUDA_ERROR_INVALID_VALUE;
  if (!side(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcPitch, when, from)) return CUDA_ERROR_INVALID_VALUE;
  to.address += c.dstY * c.dstPitch + c.dstXInBytes;
  from.address += c.srcY * c.srcPitch + c.srcXInBytes;
  return copy(to, from, {c.WidthInBytes, c.Height}, stream, when);
}

CUresult copy_3d(const CUDA_MEMCPY3D* copy_of, CUstream stream, When when) {
  if (!copy_of) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D& c = *copy_of;
  if (c.srcMemoryType == CU_MEMORYTYPE_ARRAY || c.dstMemoryType == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  Side to, from;
  if (!side(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstPitch, when, to)) return CUDA_ERROR_INVALID_VALUE;
  if (!side(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcPitch, when, from)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t z = 0; z < c.Depth; ++z) {
    Side layer_to = to, layer_from = from;
    layer_to.address += ((c.dstZ + z) * c.dstHeight + c.dstY) * c.dstPitch + c.dstXInBytes;
    layer_from.address += ((c.srcZ + z) * c.srcHeight + c.srcY) * c.srcPitch + c.srcXInBytes;
    if (const CUresult wrong = copy(layer_to, layer_from, {c.WidthInBytes, c.Height}, stream, when)) return wrong;
  }
  return CUDA_SUCCESS;
}

CUresult fill(CUdeviceptr to, size_t pitch, uint32_t value, uint32_t element, size_t width, size_t height, CUstream stream, When when) {
  StreamTarget target;
  if (const CUresult wrong = resolve(stream, target)) return wrong;
  if (width > kDeviceAddresses) return CUDA_ERROR_INVALID_VALUE;
  const FillRequest request{{to, pitch}, width * element, height, target.stream, value, element};
  Nothing nothing;
  const CUresult outcome = result(call(CallId::kFill, target.context, request, nothing));
  // A fill of device memory does not wait, on hardware neither; one of host memory does.
  if (outcome != CUDA_SUCCESS || when == When::kAsynchronous || is_device_address(to)) return outcome;
  return result(call(CallId::kStreamSynchronize, target.context, StreamSynchronizeRequest{target.stream}, nothing));
}

}  // namespace
}  // namespace vgpu::sim

using namespace vgpu::sim;

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(unified_side(to, size, When::kSynchronous), unified_side(from, size, When::kSynchronous), {size, 1}, nullptr,
              When::kSynchronous);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy(unified_side(to, size, When::kAsynchronous), unified_side(from, size, When::kAsynchronous), {size, 1}, stream,
              When::kAsynchronous);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t size) {
  return copy(device_side(to, size), host_side(from, size, When::kSynchronous), {size, 1}, nullptr, When::kSynchronous);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  return copy(device_side(to, size), host_side(from, size, When::kAsynchronous), {size, 1}, stream, When::kAsynchronous);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t size) {
  return copy(host_side(to, size, When::kSynchronous), device_side(from, size), {size, 1}, nullptr, When::kSynchronous);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy(host_side(to, size, When::kAsynchronous), device_side(from, size), {size, 1}, stream, When::kAsynchronous);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(device_side(to, size), device_side(from, size), {size, 1}, nullptr, When::kSynchronous);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy(device_side(to, size), device_side(from, size), {size, 1}, stream, When::kAsynchronous);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) { return copy_2d(copy, nullptr, When::kSynchronous); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) { return copy_2d(copy, nullptr, When::kSynchronous); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) { return copy_2d(copy, stream, When::kAsynchronous); }
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) { return copy_3d(copy, nullptr, When::kSynchronous); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) { return copy_3d(copy, stream, When::kAsynchronous); }

#define VGPU_SIM_FILL(type, plain, plain_async, rows, rows_async)                                                   \
  CUresult plain(CUdeviceptr to, type value, size_t count) {                                                              \
    return fill(to, count * sizeof(type), value, sizeof(type), count, 1, nullptr, When::kSynchronous);                    \
  }                                                                                                                       \
  CUresult plain_async(CUdeviceptr to, type value, size_t count, CUstream stream) {                                       \
    return fill(to, count * sizeof(type), value, sizeof(type), count, 1, stream, When::kAsynchronous);                    \
  }                                                                                                                       \
  CUresult rows(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {                                  \
    return fill(to, pitch, value, sizeof(type), width, height, nullptr, When::kSynchronous);                              \
  }                                                                                                                       \
  CUresult rows_async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream) {           \
    return fill(to, pitch, value, sizeof(type), width, height, stream, When::kAsynchronous);                              \
  }
VGPU_SIM_FILL(unsigned char, cuMemsetD8_v2, cuMemsetD8Async, cuMemsetD2D8_v2, cuMemsetD2D8Async)
VGPU_SIM_FILL(unsigned short, cuMemsetD16_v2, cuMemsetD16Async, cuMemsetD2D16_v2, cuMemsetD2D16Async)
VGPU_SIM_FILL(unsigned int, cuMemsetD32_v2, cuMemsetD32Async, cuMemsetD2D32_v2, cuMemsetD2D32Async)
#undef VGPU_SIM_FILL
