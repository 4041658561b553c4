// The simulator's pure parts, without a process or a socket: the spec, the books of memory, the timeline. Prints the name of what failed.
#include <cstdio>
#include <memory>
#include <string>

#include "common/spec.h"
#include "device/memory.h"
#include "device/timeline.h"

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

static std::shared_ptr<Order> context_with_streams(Timeline& timeline, size_t streams) {
  auto lane = std::make_shared<Lane>();
  auto context = std::make_shared<Order>();
  for (size_t i = 0; i <= streams; i++) {
    auto stream = std::make_shared<Stream>();
    stream->context = context;
    context->streams.push_back(stream);
  }
  context->legacy = context->streams[0];
  lane->contexts.push_back(context);
  timeline.join(lane);
  return context;
}

static std::shared_ptr<Operation> work(uint64_t nanoseconds) {
  auto operation = std::make_shared<Operation>();
  operation->work = Operation::Work::kKernel;
  operation->left = nanoseconds;
  return operation;
}

static void processes_take_turns_of_a_slice() {
  Timeline timeline;
  auto first = context_with_streams(timeline, 0), second = context_with_streams(timeline, 0);
  auto long_work = work(5 * kSlice), short_work = work(kSlice / 2);
  timeline.submit(*first->legacy, long_work, 1000);
  EXPECT(timeline.advance(1000) == 1000 + kSlice);
  timeline.submit(*second->legacy, short_work, 1001);  // comes in the middle of a slice
  EXPECT(timeline.advance(1000 + kSlice - 1) == 1000 + kSlice);
  EXPECT(timeline.advance(1000 + kSlice) == 1000 + kSlice + kSlice / 2);
  EXPECT(!timeline.take_finished());
  EXPECT(timeline.advance(1000 + 2 * kSlice) == 1000 + 2 * kSlice + kSlice / 2);
  EXPECT(timeline.take_finished() && short_work->finished && short_work->ended == 1000 + kSlice + kSlice / 2);
  EXPECT(!timeline.advance(1000 + 10 * kSlice));
  EXPECT(long_work->finished && long_work->ended == 1000 + 5 * kSlice + kSlice / 2);
  EXPECT(timeline.busy() == 5 * kSlice + kSlice / 2);
  first->end();
  second->end();
}

static void a_late_engine_catches_up_without_losing_time() {
  Timeline timeline;
  auto context = context_with_streams(timeline, 0);
  auto first = work(100), second = work(100), later = work(100);
  timeline.submit(*context->legacy, first, 1000);
  timeline.submit(*context->legacy, second, 1010);
  EXPECT(!timeline.advance(5000));
  EXPECT(first->ended == 1100 && second->ended == 1200);
  timeline.submit(*context->legacy, later, 5000);  // and idle time is not made up for
  EXPECT(!timeline.advance(6000));
  EXPECT(later->ended == 5100 && timeline.busy() == 300);
  context->end();
}

static void a_fault_drops_what_is_behind_it_in_its_context_only() {
  Timeline timeline;
  auto broken = context_with_streams(timeline, 1), intact = context_with_streams(timeline, 0);
  auto fault = work(100), behind = work(100), beside = work(100);
  bool ran = false;
  fault->effect = [](const Operation&) { return 700; };
  behind->effect = [&ran](const Operation&) { return ran = true, 0; };
  timeline.submit(*broken->streams[1], fault, 0);
  timeline.submit(*broken->streams[1], behind, 0);
  timeline.submit(*intact->legacy, beside, 0);
  EXPECT(!timeline.advance(10 * kSlice));
  EXPECT(broken->error == 700 && fault->status == 700 && behind->finished && behind->status == 700 && !ran);
  EXPECT(intact->error == 0 && beside->finished && beside->status == 0);
  broken->end();
  intact->end();
}

static void an_operation_dropped_in_mid_slice_costs_the_time_until_then() {
  Timeline timeline;
  auto dying = context_with_streams(timeline, 0), next = context_with_streams(timeline, 0);
  auto endless = work(1000 * kSlice), waiting = work(100);
  timeline.submit(*dying->legacy, endless, 0);
  EXPECT(timeline.advance(0) == kSlice);
  timeline.submit(*next->legacy, waiting, 10);
  timeline.drop(*dying, 709, 500);
  EXPECT(endless->finished && endless->dropped);
  EXPECT(timeline.advance(500) == 600);
  EXPECT(!timeline.advance(600) && waiting->ended == 600 && timeline.busy() == 600);
  dying->end();
  next->end();
}

static void a_window_forgets_after_a_second() {
  constexpr uint64_t kSecond = 1000000000;
  Window window;
  for (uint64_t now = 0; now < 2 * kSecond; now += kSecond / 100) window.add(now + kSecond / 100, kSecond / 200);
  EXPECT(window.per_cent(2 * kSecond) == 50);
  EXPECT(window.per_cent(2 * kSecond + kSecond / 2) >= 24 && window.per_cent(2 * kSecond + kSecond / 2) <= 26);
  EXPECT(window.per_cent(4 * kSecond) == 0);
  window.add(9 * kSecond, kSecond / 10);
  EXPECT(window.per_cent(9 * kSecond + kSecond / 10) == 10);
}

int main() {
  processes_take_turns_of_a_slice();
  a_late_engine_catches_up_without_losing_time();
  a_fault_drops_what_is_behind_it_in_its_context_only();
  an_operation_dropped_in_mid_slice_costs_the_time_until_then();
  a_window_forgets_after_a_second();
  a_spec_lists_devices_and_bad_input_changes_nothing();
  blocks_charge_device_and_process_while_they_live();
  an_access_beyond_what_is_mapped_is_a_fault();
  ranges_given_back_join_again();
  return failures != 0;
}
