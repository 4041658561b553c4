// Copies and fills.
#include "call.h"
#include "kernels.h"
#include "vgpu/cuda_abi.h"

namespace vgpu::sim {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 46;

std::shared_ptr<Operation> copy_operation(uint64_t duration) {
  auto operation = std::make_shared<Operation>();
  operation->work = Operation::Work::kCopy;
  operation->left = duration;
  return operation;
}

int32_t fault_unless(bool mapped) { return mapped ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS; }

// Rows that do not overlap, and small enough that width, height and pitch multiply without an overflow.
bool plausible(const Rows& rows, uint64_t width, uint64_t height) {
  if (width == 0 || height <= 1) return width <= kMaxBytes;
  return rows.pitch >= width && height <= kMaxBytes / rows.pitch;
}

}  // namespace

int32_t on_CopyIn(Call& call, const CopyInRequest& request, CopyInReply&) {
  uint32_t device = 0;
  const auto stream = call.stream(request.stream, device);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t width = request.width, height = request.height;
  if (!plausible(request.to, width, height)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t bytes = width * height;
  if (bytes > (request.staged ? kStagingSize : call.payload.size())) return CUDA_ERROR_INVALID_VALUE;
  AddressSpace& space = call.client->space;
  std::mutex& mutex = call.machine.mutex;
  if (bytes == 0) return CUDA_SUCCESS;
  // What is not mapped now is refused; what is unmapped before the copy's turn is a fault of the context.
  if (!mapped(space, request.to, width, height, true)) return CUDA_ERROR_INVALID_VALUE;

  auto operation = copy_operation(host_copy_duration(bytes));
  operation->check = [&space, to = request.to, width, height] { return fault_unless(mapped(space, to, width, height, true)); };
  if (!request.staged) {
    operation->effect = [&mutex, &space, to = request.to, width, height, data = std::move(call.payload)](const Operation& self) {
      return copy_in(space, to, width, height, data.data(), Mover(mutex, self.dropped));
    };
    return call.submit(stream, device, std::move(operation));
  }
  operation->effect = [&mutex, &space, to = request.to, width, height, staging = call.staging](const Operation& self) {
    return copy_in(space, to, width, height, staging.get(), Mover(mutex, self.dropped));
  };
  const int32_t status = call.submit(stream, device, operation);
  return status != CUDA_SUCCESS ? status : call.wait(*operation);
}

int32_t on_CopyOut(Call& call, const CopyOutRequest& request, CopyOutReply&) {
  uint32_t device = 0;
  const auto stream = call.stream(request.stream, device);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t width = request.width, height = request.height;
  if (!plausible(request.from, width, height)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t bytes = width * height;
  if (bytes > (request.staged ? kStagingSize : kMaxPayload)) return CUDA_ERROR_INVALID_VALUE;
  AddressSpace& space = call.client->space;
  std::mutex& mutex = call.machine.mutex;
  if (bytes == 0) return CUDA_SUCCESS;
  if (!mapped(space, request.from, width, height, false)) return CUDA_ERROR_INVALID_VALUE;

  // Not into the call itself: this operation may outlive it when the client dies.
  const auto packed = std::make_shared<std::vector<char>>(request.staged ? 0 : bytes);
  auto operation = copy_operation(host_copy_duration(bytes));
  operation->check = [&space, from = request.from, width, height] { return fault_unless(mapped(space, from, width, height, false)); };
  operation->effect = [&mutex, &space, from = request.from, width, height, packed, staged = request.staged != 0,
                       staging = call.staging](const Operation& self) {
    return copy_out(space, from, width, height, staged ? staging.get() : packed->data(), Mover(mutex, self.dropped));
  };
  int32_t status = call.submit(stream, device, operation);
  if (status == CUDA_SUCCESS) status = call.wait(*operation);
  if (status == CUDA_SUCCESS) call.answer = std::move(*packed);
  return status;
}

int32_t on_CopyDevice(Call& call, const CopyDeviceRequest& request, CopyDeviceReply&) {
  uint32_t device = 0;
  const auto stream = call.stream(request.stream, device);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t width = request.width, height = request.height;
  if (!plausible(request.from, width, height) || !plausible(request.to, width, height)) return CUDA_ERROR_INVALID_VALUE;
  AddressSpace& space = call.client->space;
  std::mutex& mutex = call.machine.mutex;
  if (width * height == 0) return CUDA_SUCCESS;
  const auto both_mapped = [&space, request, width, height] {
    return mapped(space, request.from, width, height, false) && mapped(space, request.to, width, height, true);
  };
  if (!both_mapped()) return CUDA_ERROR_INVALID_VALUE;
  auto operation = copy_operation(device_copy_duration(width * height));
  operation->check = [both_mapped] { return fault_unless(both_mapped()); };
  operation->effect = [&mutex, &space, request, width, height](const Operation& self) {
    return copy_device(space, request.to, request.from, width, height, Mover(mutex, self.dropped));
  };
  return call.submit(stream, device, std::move(operation));
}

int32_t on_Fill(Call& call, const FillRequest& request, FillReply&) {
  uint32_t device = 0;
  const auto stream = call.stream(request.stream, device);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t width = request.width, height = request.height;
  const uint32_t element = request.element;
  if (element != 1 && element != 2 && element != 4) return CUDA_ERROR_INVALID_VALUE;
  if (!plausible(request.to, width, height) || width % element || request.to.address % element || request.to.pitch % element)
    return CUDA_ERROR_INVALID_VALUE;
  AddressSpace& space = call.client->space;
  std::mutex& mutex = call.machine.mutex;
  if (width * height == 0) return CUDA_SUCCESS;
  if (!mapped(space, request.to, width, height, true)) return CUDA_ERROR_INVALID_VALUE;
  auto operation = copy_operation(device_copy_duration(width * height));
  operation->check = [&space, to = request.to, width, height] { return fault_unless(mapped(space, to, width, height, true)); };
  operation->effect = [&mutex, &space, to = request.to, width, height, value = request.value, element](const Operation& self) {
    return fill(space, to, width, height, value, element, Mover(mutex, self.dropped));
  };
  return call.submit(stream, device, std::move(operation));
}

}  // namespace vgpu::sim
