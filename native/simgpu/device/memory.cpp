#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace vgpu::sim {

std::optional<Charge> Charge::take(Ledger& device, std::shared_ptr<Ledger> process, uint64_t bytes) {
  if (bytes > device.total - device.used) return std::nullopt;
  return Charge(device, std::move(process), bytes);
}

Charge::Charge(Ledger& device, std::shared_ptr<Ledger> process, uint64_t bytes)
    : device_(&device), process_(std::move(process)), bytes_(bytes) {
  device_->used += bytes_;
  process_->used += bytes_;
}

Charge::Charge(Charge&& other) noexcept
    : device_(other.device_), process_(std::move(other.process_)), bytes_(std::exchange(other.bytes_, 0)) {}

Charge::~Charge() {
  if (bytes_ == 0) return;
  device_->used -= bytes_;
  process_->used -= bytes_;
}

void Charge::move_to(std::shared_ptr<Ledger> process) {
  process_->used -= bytes_;
  process_ = std::move(process);
  process_->used += bytes_;
}

int shareable_memory(const char* name, uint64_t size) {
  const int memory = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory < 0) return -1;
  if (ftruncate(memory, off_t(size)) == 0 && fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) return memory;
  close(memory);
  return -1;
}

std::shared_ptr<Block> Block::create(Ledger& device, std::shared_ptr<Ledger> process, uint32_t device_index, uint64_t size) {
  auto charge = Charge::take(device, std::move(process), size);
  if (!charge) return nullptr;
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  return std::shared_ptr<Block>(new Block(std::move(charge), static_cast<char*>(data), size, device_index));
}

std::shared_ptr<Block> Block::create_shared(std::optional<Charge> charge, uint32_t device_index, uint64_t size, int shared) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, shared, 0);
  if (data == MAP_FAILED) return nullptr;
  auto block = std::shared_ptr<Block>(new Block(std::move(charge), static_cast<char*>(data), size, device_index));
  block->shared_ = true;
  return block;
}

Block::Block(std::optional<Charge> charge, char* data, uint64_t size, uint32_t device)
    : charge_(std::move(charge)), data_(data), size_(size), device_(device) {}

Block::~Block() { munmap(data_, size_); }

void Block::zero(char* begin, uint64_t size) {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin), end = first + size;
  const uintptr_t pages = (first + kPage - 1) / kPage * kPage, pages_end = end / kPage * kPage;
  // MADV_DONTNEED leaves what is shared as it is.
  const int advice = shared_ ? MADV_REMOVE : MADV_DONTNEED;
  if (pages >= pages_end || madvise(reinterpret_cast<void*>(pages), pages_end - pages, advice) != 0) {
    std::memset(begin, 0, size);
    return;
  }
  std::memset(begin, 0, pages - first);
  std::memset(reinterpret_cast<void*>(pages_end), 0, end - pages_end);
}

uint64_t RangeAllocator::take(uint64_t size, uint64_t alignment, uint64_t hint) {
  if (hint != 0 && hint % alignment == 0) {
    auto range = free_.upper_bound(hint);
    if (range != free_.begin()) {
      --range;
      const uint64_t skipped = hint - range->first;
      if (skipped < range->second && range->second - skipped >= size) return carve(range, hint, size);
    }
  }
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const uint64_t begin = (range->first + alignment - 1) / alignment * alignment;
    const uint64_t skipped = begin - range->first;
    if (skipped < range->second && range->second - skipped >= size) return carve(range, begin, size);
  }
  return 0;
}

uint64_t RangeAllocator::carve(std::map<uint64_t, uint64_t>::iterator range, uint64_t begin, uint64_t size) {
  const uint64_t base = range->first, end = range->first + range->second;
  free_.erase(range);
  if (begin > base) free_[base] = begin - base;
  if (begin + size < end) free_[begin + size] = end - begin - size;
  return begin;
}

void RangeAllocator::give_back(uint64_t base, uint64_t size) {
  auto next = free_.lower_bound(base);
  if (next != free_.end() && next->first == base + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == base) {
      before->second += size;
      return;
    }
  }
  free_[base] = size;
}

std::map<uint64_t, Mapping>::iterator AddressSpace::find(uint64_t address) {
  auto found = mappings_.upper_bound(address);
  if (found == mappings_.begin()) return mappings_.end();
  --found;
  return address - found->first < found->second.size ? found : mappings_.end();
}

std::optional<std::vector<Span>> AddressSpace::resolve(uint64_t address, uint64_t size, uint32_t device, bool write) {
  std::vector<Span> spans;
  while (size > 0) {
    const auto found = find(address);
    if (found == mappings_.end()) return std::nullopt;
    const Mapping& mapping = found->second;
    const uint32_t allowed = write ? mapping.writable : mapping.readable;
    if (device == kAnyDevice ? allowed == 0 : (allowed >> device & 1) == 0) return std::nullopt;
    if (!spans.empty() && !mapping.joins_neighbours()) return std::nullopt;
    const uint64_t inside = address - found->first;
    const uint64_t length = std::min(size, mapping.size - inside);
    if (length < size && !mapping.joins_neighbours()) return std::nullopt;
    spans.push_back({mapping.block, mapping.block->data() + mapping.offset + inside, length});
    address += length;
    size -= length;
  }
  return spans;
}

}  // namespace vgpu::sim
