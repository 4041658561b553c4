#include "timeline.h"

#include <algorithm>
#include <utility>

namespace vgpu::sim {

void Window::add(uint64_t end, uint64_t spent) {
  const uint64_t step = end / kStep;
  if (step > last_ + kSteps) spent_.fill(0);
  else
    for (uint64_t empty = last_ + 1; empty <= step; empty++) spent_[empty % spent_.size()] = 0;
  last_ = std::max(last_, step);
  spent_[step % spent_.size()] += spent;
}

uint64_t Window::sum(uint64_t now) const {
  const uint64_t step = now / kStep;  // still filling, so it does not count
  uint64_t sum = 0;
  for (uint64_t back = 1; back <= kSteps && back <= step; back++) {
    const uint64_t at = step - back;
    if (at <= last_ && last_ - at <= kSteps) sum += spent_[at % spent_.size()];
  }
  return std::min<uint64_t>(sum, 1000000000u);
}

void Timeline::leave(const Lane* lane) {
  for (const auto& context : std::vector<std::shared_ptr<Order>>(lane->contexts)) drop(*context, 0, clock_);
  lanes_.erase(std::remove_if(lanes_.begin(), lanes_.end(), [&](const auto& other) { return other.get() == lane; }), lanes_.end());
}

void Timeline::drop(Order& context, int32_t status, uint64_t now) {
  for (const auto& stream : context.streams) {
    for (const auto& operation : stream->pending) {
      operation->finished = true;
      operation->dropped = true;
      operation->status = status;
      operation->ended = now;
      finished_ = true;
    }
    stream->pending.clear();
  }
  // The device's time up to here was spent; whoever is next starts now.
  if (running_ && running_->stream->context.get() == &context) {
    const uint64_t end = std::clamp(now, running_->begin, running_->end);
    running_->operation->left = 0;
    running_->end = end;
  }
}

void Timeline::submit(Stream& stream, std::shared_ptr<Operation> operation, uint64_t now) {
  operation->submitted = now;
  operation->order = ++stream.context->submitted;
  stream.pending.push_back(std::move(operation));
}

bool Timeline::ready(const Stream& stream) {
  if (stream.pending.empty()) return false;
  const Operation& first = *stream.pending.front();
  if (first.after && !first.after->finished) return false;
  if (!stream.blocking) return true;
  const Order& context = *stream.context;
  const auto earlier = [&](const Stream& other) {
    return &other != &stream && other.blocking && !other.pending.empty() && other.pending.front()->order < first.order;
  };
  if (&stream != context.legacy.get()) return !earlier(*context.legacy);
  return std::none_of(context.streams.begin(), context.streams.end(), [&](const auto& other) { return earlier(*other); });
}

std::shared_ptr<Stream> Timeline::next_stream(Lane& lane) const {
  std::vector<std::shared_ptr<Stream>> streams;
  for (const auto& context : lane.contexts) streams.insert(streams.end(), context->streams.begin(), context->streams.end());
  for (size_t i = 1; i <= streams.size(); i++) {
    const size_t at = (lane.turn + i) % streams.size();
    if (!ready(*streams[at])) continue;
    lane.turn = at;
    return streams[at];
  }
  return nullptr;
}

bool Timeline::choose() {
  for (size_t i = 0; i <= lanes_.size(); i++) {  // once around, and the present holder again
    if (lanes_.empty()) return false;
    turn_ %= lanes_.size();
    Lane& lane = *lanes_[turn_];
    if (lane.slice_left > 0) {
      if (const auto stream = next_stream(lane)) {
        start(stream);
        return true;
      }
    }
    lane.slice_left = 0;
    turn_ = (turn_ + 1) % lanes_.size();
    lanes_[turn_]->slice_left = kSlice;
  }
  return false;
}

void Timeline::start(const std::shared_ptr<Stream>& stream) {
  const auto& lane = lanes_[turn_];
  const auto& operation = stream->pending.front();
  uint64_t begin = std::max(clock_, operation->submitted);
  if (operation->after) begin = std::max(begin, operation->after->ended);
  operation->after.reset();
  int32_t status = 0;
  if (!operation->started && operation->check) status = operation->check();
  operation->started = true;
  operation->status = status;
  const uint64_t length = status != 0 ? 0 : std::min(operation->left, lane->slice_left);
  running_ = Running{lane, stream, operation, begin, begin + length};
}

std::optional<uint64_t> Timeline::advance(uint64_t now) {
  for (;;) {
    if (!running_ && !choose()) return std::nullopt;
    if (running_->end > now) return running_->end;
    Running running = std::move(*running_);
    running_.reset();
    finish(running);
  }
}

void Timeline::finish(Running& running) {
  Operation& operation = *running.operation;
  const uint64_t spent = running.end - running.begin;
  clock_ = running.end;
  busy_ += spent;
  busy_window_.add(clock_, spent);
  running.lane->busy += spent;
  running.lane->window.add(clock_, spent);
  if (operation.work == Operation::Work::kCopy) {
    copy_window_.add(clock_, spent);
    running.lane->copy_window.add(clock_, spent);
  }
  running.lane->slice_left -= std::min(running.lane->slice_left, spent);
  if (operation.finished) return;  // dropped meanwhile
  if (operation.status == 0) {
    operation.left -= std::min(operation.left, spent);
    if (operation.left > 0) return;
    if (operation.effect) {
      const int32_t status = operation.effect(operation);
      if (operation.finished) return;  // dropped while the effect had given the mutex up
      operation.status = status;
    }
  }
  Order& context = *running.stream->context;
  operation.finished = finished_ = true;
  operation.ended = clock_;
  running.stream->pending.pop_front();
  if (operation.status != 0) {
    context.error = operation.status;
    drop(context, operation.status, clock_);
  }
  if (running.stream->destroyed && running.stream->pending.empty())
    context.streams.erase(std::remove(context.streams.begin(), context.streams.end(), running.stream), context.streams.end());
}

bool Timeline::take_finished() { return std::exchange(finished_, false); }

}  // namespace vgpu::sim
