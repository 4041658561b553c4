// A device's timeline: which operation of which stream of which process has the device, and since when.
//
// A pure state machine over an explicit clock (nanoseconds); it neither locks nor sleeps. The device process calls it under its one
// mutex: handlers submit, the device's engine thread advances.
//
// One operation runs at a time. Processes take turns of kSlice, as contexts do on hardware without MPS; within a process its streams
// take turns. A kernel is preempted at the end of its slice and goes on in the next.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace vgpu::sim {

constexpr uint64_t kSlice = 2000000;     // ns
constexpr size_t kQueueLimit = 1024;     // operations pending in a stream; one more waits

struct Stream;

// What the timeline knows of a context: its streams, in whose order their work was submitted, and the error that ended it.
struct Order {
  int32_t error = 0;  // CUresult; sticky
  uint64_t submitted = 0;
  std::vector<std::shared_ptr<Stream>> streams;
  std::shared_ptr<Stream> legacy;  // one of `streams`
  bool ended = false;

  // The context is no more: nothing is submitted from now on. Call Timeline::drop before.
  void end() {
    ended = true;
    streams.clear();
    legacy.reset();
  }
};

struct Operation {
  enum class Work { kNone, kKernel, kCopy };
  Work work = Work::kNone;
  uint64_t left = 0;                            // ns of device time still to come
  std::function<int32_t()> check;               // at the start; a CUresult other than 0 is a fault of the context
  std::function<int32_t(const Operation&)> effect;  // at the end, likewise; may give the mutex up and take it again
  std::shared_ptr<Operation> after;             // another stream's operation that has to be finished first
  uint64_t submitted = 0;                       // ns
  uint64_t order = 0;                           // in the context
  bool started = false, finished = false;
  std::atomic<bool> dropped{false};             // finished without effect: an effect that runs without the mutex stops
  int32_t status = 0;                           // CUresult, once finished
  uint64_t ended = 0;                           // ns, once finished
};

struct Stream {
  std::shared_ptr<Order> context;
  bool blocking = true;   // keeps order with the legacy stream
  bool destroyed = false;  // its pending work still runs
  std::deque<std::shared_ptr<Operation>> pending;  // the first may be running
};

// Nanoseconds spent within the last second, in steps of 1/kSteps s.
class Window {
 public:
  void add(uint64_t end, uint64_t spent);
  uint64_t sum(uint64_t now) const;  // of the last full second
  uint32_t per_cent(uint64_t now) const { return uint32_t((sum(now) * 100 + 500000000u) / 1000000000u); }

 private:
  static constexpr uint64_t kSteps = 20, kStep = 1000000000u / kSteps;
  std::array<uint64_t, kSteps + 1> spent_{};
  uint64_t last_ = 0;  // the step that `spent_` ends with
};

// A process on this device.
struct Lane {
  std::vector<std::shared_ptr<Order>> contexts;
  uint64_t busy = 0;  // ns since the process came
  Window window, copy_window;
  uint64_t slice_left = 0;
  size_t turn = 0;  // which stream was last
};

class Timeline {
 public:
  void join(std::shared_ptr<Lane> lane) { lanes_.push_back(std::move(lane)); }
  void leave(const Lane* lane);
  // Takes a context's streams out of everything: pending operations finish with `status`, without effect.
  void drop(Order& context, int32_t status, uint64_t now);
  void submit(Stream& stream, std::shared_ptr<Operation> operation, uint64_t now);
  // Finishes all that is due at `now`. Returns when something is due next; nothing while no operation can run.
  std::optional<uint64_t> advance(uint64_t now);
  // Whether an operation finished since the last call.
  bool take_finished();

  uint64_t busy() const { return busy_; }
  uint32_t utilization(uint64_t now) const { return busy_window_.per_cent(now); }
  uint32_t memory_activity(uint64_t now) const { return copy_window_.per_cent(now); }

 private:
  struct Running {
    std::shared_ptr<Lane> lane;
    std::shared_ptr<Stream> stream;
    std::shared_ptr<Operation> operation;
    uint64_t begin, end;
  };
  static bool ready(const Stream& stream);
  std::shared_ptr<Stream> next_stream(Lane& lane) const;
  bool choose();
  void start(const std::shared_ptr<Stream>& stream);
  void finish(Running& running);

  std::vector<std::shared_ptr<Lane>> lanes_;
  size_t turn_ = 0;  // whose slice it is
  std::optional<Running> running_;
  uint64_t clock_ = 0, busy_ = 0;
  bool finished_ = false;
  Window busy_window_, copy_window_;
};

}  // namespace vgpu::sim
