#include "kernels.h"

#include <algorithm>
#include <cstring>

#include "vgpu/cuda_abi.h"

namespace vgpu::sim {
namespace {

// A modest card: 400 GB/s of memory, 16 GB/s of link, a few microseconds for each operation.
constexpr uint64_t kKernelOverhead = 2000, kCopyOverhead = 3000;
constexpr uint32_t kMaxGrid[3] = {INT32_MAX, 65535, 65535}, kMaxThreads = 1024;
constexpr uint64_t kMemoryBytesPerMicrosecond = 400000, kLinkBytesPerMicrosecond = 16000;

template <class T>
T parameter(const std::vector<char>& parameters, size_t offset) {
  T value;
  std::memcpy(&value, parameters.data() + offset, sizeof value);
  return value;
}

size_t parameters_size(Kernel kernel) {
  switch (kernel) {
    case Kernel::kFill: return 16;
    case Kernel::kSaxpy: return 28;
    case Kernel::kAdd: return 28;
    case Kernel::kScale: return 20;
    case Kernel::kSpin: return 4;
    case Kernel::kUnknown: break;
  }
  return 0;
}

// Rows that follow each other without a gap are one.
void merge(Rows rows, uint64_t& width, uint64_t& height) {
  if (height > 1 && rows.pitch == width) {
    width *= height;
    height = 1;
  }
}

// Calls visit(data, size) for each stretch of each row; false, and no call, when anything is not mapped.
template <class Visit>
bool for_rows(AddressSpace& space, Rows rows, uint64_t width, uint64_t height, bool write, Visit visit) {
  merge(rows, width, height);
  std::vector<Span> spans;
  for (uint64_t row = 0; row < height; row++) {
    auto found = space.resolve(rows.address + row * rows.pitch, width, kAnyDevice, write);
    if (!found) return false;
    spans.insert(spans.end(), found->begin(), found->end());
  }
  for (const Span& span : spans) visit(span);
  return true;
}

void compute(Kernel kernel, float scalar, float* const* operand, uint64_t count) {
  switch (kernel) {
    case Kernel::kFill:
      std::fill_n(operand[0], count, scalar);
      return;
    case Kernel::kSaxpy:
      for (uint64_t i = 0; i < count; i++) operand[1][i] += scalar * operand[0][i];
      return;
    case Kernel::kAdd:
      for (uint64_t i = 0; i < count; i++) operand[2][i] = operand[0][i] + operand[1][i];
      return;
    case Kernel::kScale:
      for (uint64_t i = 0; i < count; i++) operand[0][i] *= scalar;
      return;
    case Kernel::kSpin:
    case Kernel::kUnknown:
      return;
  }
}

}  // namespace

uint64_t host_copy_duration(uint64_t bytes) { return kCopyOverhead + bytes * 1000 / kLinkBytesPerMicrosecond; }
uint64_t device_copy_duration(uint64_t bytes) { return kCopyOverhead + bytes * 1000 / kMemoryBytesPerMicrosecond; }

int32_t read_launch(const LaunchRequest& request, const std::vector<char>& parameters, Work& work) {
  const size_t size = parameters_size(request.kernel);
  if (size == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (parameters.size() < size) return CUDA_ERROR_INVALID_VALUE;
  for (int axis = 0; axis < 3; axis++) {
    if (request.grid[axis] == 0 || request.grid[axis] > kMaxGrid[axis]) return CUDA_ERROR_INVALID_VALUE;
    if (request.block[axis] == 0 || request.block[axis] > kMaxThreads) return CUDA_ERROR_INVALID_VALUE;
  }
  if (uint64_t(request.block[0]) * request.block[1] * request.block[2] > kMaxThreads) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t threads = uint64_t(request.grid[0]) * request.block[0];  // the kernels' index has one axis
  work.kernel = request.kernel;
  uint64_t count = 0;
  switch (request.kernel) {
    case Kernel::kFill:
      work.operands = {{parameter<uint64_t>(parameters, 0), true}};
      work.scalar = parameter<float>(parameters, 8);
      count = parameter<uint32_t>(parameters, 12);
      break;
    case Kernel::kSaxpy:
      work.scalar = parameter<float>(parameters, 0);
      work.operands = {{parameter<uint64_t>(parameters, 8), false}, {parameter<uint64_t>(parameters, 16), true}};
      count = parameter<uint32_t>(parameters, 24);
      break;
    case Kernel::kAdd:
      work.operands = {{parameter<uint64_t>(parameters, 0), false},
                       {parameter<uint64_t>(parameters, 8), false},
                       {parameter<uint64_t>(parameters, 16), true}};
      count = parameter<uint32_t>(parameters, 24);
      break;
    case Kernel::kScale:
      work.scalar = parameter<float>(parameters, 0);
      work.operands = {{parameter<uint64_t>(parameters, 8), true}};
      count = parameter<uint32_t>(parameters, 16);
      break;
    case Kernel::kSpin:
      work.duration = uint64_t(parameter<uint32_t>(parameters, 0)) * 1000;
      return CUDA_SUCCESS;
    case Kernel::kUnknown:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  work.count = std::min(count, threads);
  work.duration = kKernelOverhead + work.count * sizeof(float) * work.operands.size() * 1000 / kMemoryBytesPerMicrosecond;
  return CUDA_SUCCESS;
}

namespace {

int32_t resolve(const Work& work, AddressSpace& space, uint32_t device, std::vector<std::vector<Span>>& spans) {
  for (const auto& operand : work.operands) {
    if (operand.address % sizeof(float)) return CUDA_ERROR_MISALIGNED_ADDRESS;
    auto found = space.resolve(operand.address, work.count * sizeof(float), device, operand.written);
    if (!found) return CUDA_ERROR_ILLEGAL_ADDRESS;
    spans.push_back(std::move(*found));
  }
  return CUDA_SUCCESS;
}

}  // namespace

int32_t check(const Work& work, AddressSpace& space, uint32_t device) {
  std::vector<std::vector<Span>> spans;
  return resolve(work, space, device, spans);
}

int32_t run(const Work& work, AddressSpace& space, uint32_t device, const Mover& mover) {
  std::vector<std::vector<Span>> spans;
  if (const int32_t status = resolve(work, space, device, spans)) return status;
  std::vector<size_t> at(spans.size());
  std::vector<uint64_t> inside(spans.size());
  mover.pieces(spans.empty() ? 0 : work.count * sizeof(float), [&](uint64_t, uint64_t left) {
    while (left > 0) {  // stretches in which no operand crosses from one span into the next
      uint64_t step = left;
      float* data[3] = {};
      for (size_t i = 0; i < spans.size(); i++) {
        const Span& span = spans[i][at[i]];
        step = std::min(step, span.size - inside[i]);
        data[i] = reinterpret_cast<float*>(span.data + inside[i]);
      }
      compute(work.kernel, work.scalar, data, step / sizeof(float));
      for (size_t i = 0; i < spans.size(); i++) {
        inside[i] += step;
        if (inside[i] < spans[i][at[i]].size) continue;
        inside[i] = 0;
        at[i]++;
      }
      left -= step;
    }
  });
  return CUDA_SUCCESS;
}

bool mapped(AddressSpace& space, Rows rows, uint64_t width, uint64_t height, bool write) {
  return for_rows(space, rows, width, height, write, [](const Span&) {});
}

int32_t copy_in(AddressSpace& space, Rows to, uint64_t width, uint64_t height, const char* from, const Mover& mover) {
  const bool done = for_rows(space, to, width, height, true, [&](const Span& span) {
    mover.pieces(span.size, [&](uint64_t offset, uint64_t size) { std::memcpy(span.data + offset, from + offset, size); });
    from += span.size;
  });
  return done ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

int32_t copy_out(AddressSpace& space, Rows from, uint64_t width, uint64_t height, char* to, const Mover& mover) {
  const bool done = for_rows(space, from, width, height, false, [&](const Span& span) {
    mover.pieces(span.size, [&](uint64_t offset, uint64_t size) { std::memcpy(to + offset, span.data + offset, size); });
    to += span.size;
  });
  return done ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

int32_t copy_device(AddressSpace& space, Rows to, Rows from, uint64_t width, uint64_t height, const Mover& mover) {
  std::vector<Span> source, target;
  const auto collect = [](std::vector<Span>& spans) { return [&spans](const Span& span) { spans.push_back(span); }; };
  if (!for_rows(space, from, width, height, false, collect(source))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (!for_rows(space, to, width, height, true, collect(target))) return CUDA_ERROR_ILLEGAL_ADDRESS;
  size_t read = 0, written = 0;
  while (read < source.size() && written < target.size()) {
    Span &input = source[read], &output = target[written];
    const uint64_t step = std::min(input.size, output.size);
    mover.pieces(step, [&](uint64_t offset, uint64_t size) { std::memmove(output.data + offset, input.data + offset, size); });
    for (Span* span : {&input, &output}) {
      span->data += step;
      span->size -= step;
    }
    if (input.size == 0) read++;
    if (output.size == 0) written++;
  }
  return CUDA_SUCCESS;
}

int32_t fill(AddressSpace& space, Rows to, uint64_t width, uint64_t height, uint32_t value, uint32_t element, const Mover& mover) {
  const bool done = for_rows(space, to, width, height, true, [&](const Span& span) {
    mover.pieces(span.size, [&](uint64_t offset, uint64_t size) {
      char* data = span.data + offset;
      if (value == 0) span.block->zero(data, size);
      else if (element == 1) std::memset(data, int(value), size);
      else if (element == 2) std::fill_n(reinterpret_cast<uint16_t*>(data), size / 2, uint16_t(value));
      else std::fill_n(reinterpret_cast<uint32_t*>(data), size / 4, value);
    });
  });
  return done ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

}  // namespace vgpu::sim
