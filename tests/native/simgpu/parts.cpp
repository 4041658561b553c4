// The simulator's pure parts, without a process or a socket: the spec, and the books of memory. Prints the name of what failed.
#include <cstdio>
#include <memory>
#include <string>

#include "common/spec.h"
#include "device/memory.h"

using namespace vgpu::sim;

static int failures = 0;
#define EXPECT(condition) \
  if (!(condition)) failures++, std::printf("%s:%d: expected %s\n", __FILE__, __LINE__, #condition)

constexpr uint64_t kGiB = uint64_t{1} << 30, kMiB = uint64_t{1} << 20, kPage = 4096;

static void a_spec_lists_devices_and_bad_input_changes_nothing() {
  Spec spec;
  std::string error;
  EXPECT(parse_spec("2x16GiB,context=100MiB", spec, error));
  EXPECT(spec.memory == std::vector<uint64_t>({16 * kGiB, 16 * kGiB}) && spec.context_overhead == 100 * kMiB);
  EXPECT(parse_spec("16GiB,8GiB", spec, error));
  EXPECT(spec.memory == std::vector<uint64_t>({16 * kGiB, 8 * kGiB}) && spec.context_overhead == 300 * kMiB);
  for (const char* bad : {"", "0x1GiB", "99x1GiB", "16", "1x", "16GiB,", "context=1GiB", "1MiB", "16GiB,context=x"}) {
    error.clear();
    EXPECT(!parse_spec(bad, spec, error) && error.rfind("VGPU_SIMULATED: ", 0) == 0);
    EXPECT(spec.memory.size() == 2);
  }
}

static void blocks_charge_device_and_process_while_they_live() {
  Ledger device;
  device.total = 16 * kGiB;
  auto creator = std::make_shared<Ledger>(), importer = std::make_shared<Ledger>();
  {
    auto block = Block::create(device, creator, 0, 4 * kGiB);
    EXPECT(block && device.used == 4 * kGiB && creator->used == 4 * kGiB);
    EXPECT(!Block::create(device, importer, 0, 13 * kGiB) && importer->used == 0);
    block->charge_to(importer);
    EXPECT(creator->used == 0 && importer->used == 4 * kGiB && device.used == 4 * kGiB);
  }
  EXPECT(device.used == 0 && importer->used == 0);
}

static void an_access_beyond_what_is_mapped_is_a_fault() {
  Ledger device;
  device.total = kGiB;
  auto block = Block::create(device, std::make_shared<Ledger>(), 0, 4 * kMiB);
  AddressSpace space;
  space.mappings()[1 * kMiB] = {kMiB, block, 0, 1, 1, Memory::kMapped, 0, 0};
  space.mappings()[2 * kMiB] = {kMiB, block, kMiB, 1, 0, Memory::kMapped, 0, 0};
  space.mappings()[3 * kMiB] = {kMiB, block, 2 * kMiB, 1, 1, Memory::kDevice, 0, 0};
  EXPECT(space.resolve(2 * kMiB - 8, 16, 0, false)->size() == 2);
  EXPECT(!space.resolve(2 * kMiB - 8, 16, 0, true));   // the second is read-only
  EXPECT(!space.resolve(3 * kMiB - 8, 16, 0, false));  // an allocation is not entered from its neighbour
  EXPECT(!space.resolve(4 * kMiB - 8, 16, 0, false));  // past the end
  EXPECT(!space.resolve(1 * kMiB, 8, 1, false));       // another device, without access
}

static void ranges_given_back_join_again() {
  RangeAllocator ranges(kMiB, kMiB);
  const uint64_t first = ranges.take(kPage, kPage), second = ranges.take(kPage, kPage);
  EXPECT(first == kMiB && second == first + kPage);
  ranges.give_back(first, kPage);
  EXPECT(ranges.take(2 * kPage, kPage) == second + kPage);
  EXPECT(ranges.take(kPage, kPage, first) == first);
  EXPECT(ranges.take(kMiB, kPage) == 0);
  ranges.give_back(second, kPage);
  ranges.give_back(first, kPage);
  ranges.give_back(second + kPage, 2 * kPage);
  EXPECT(ranges.take(kMiB, kPage) == kMiB);
}

int main() {
  a_spec_lists_devices_and_bad_input_changes_nothing();
  blocks_charge_device_and_process_while_they_live();
  an_access_beyond_what_is_mapped_is_a_fault();
  ranges_given_back_join_again();
  return failures != 0;
}
