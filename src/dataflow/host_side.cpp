#include "dataflow/host_side.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "dataflow/ops.h"

namespace millrace {

size_t bytes_of(const LinearWeights& w) {
  const bool as_in_file = w.layout->in_place(w.format, w.n, w.k);
  return as_in_file ? static_cast<size_t>(w.n) * row_bytes(w.format, w.k) : w.layout->bytes(w.format, w.n, w.k);
}

size_t streamed_bytes(const Linear& streamed) {
  size_t sum = 0;
  for (const auto& part : streamed.parts) sum += Arena::padded(bytes_of(part.weights));
  return sum;
}

size_t HostSide::weights_offset(const Routing& routing) {
  return static_cast<size_t>(reinterpret_cast<std::byte*>(routing.weights) -
                             reinterpret_cast<std::byte*>(routing.chosen));
}

std::byte* HostSide::take(Buffer which, size_t bytes) {
  Space& space = spaces_[which];
  if (plain_ != nullptr) {
    MR_ASSERT(bytes <= space.bytes);  // the dry passes request every buffer of a step
    return space.data;
  }
  space.bytes = std::max(space.bytes, bytes);
  return reinterpret_cast<std::byte*>(uintptr_t{which + 1u} << 40);  // distinct, as in models/activations
}

Matrix HostSide::matrix(Buffer which, int64_t rows, int64_t cols) {
  const int64_t room = ops_.padded_rows(rows);  // batch-invariant plans add rows as padding
  return {DType::F32, rows, cols, cols, take(which, static_cast<size_t>(room * cols) * sizeof(float))};
}

Matrix HostSide::input(int64_t rows, int64_t cols) { return matrix(kInput, rows, cols); }
Matrix HostSide::output(int64_t rows, int64_t cols) { return matrix(kOutput, rows, cols); }
Matrix HostSide::feed(int64_t rows, int64_t cols) { return matrix(kFeed, rows, cols); }

Routing HostSide::routing(const Routing& like) {
  const size_t pairs = static_cast<size_t>(like.pairs()) * sizeof(int32_t), weights_at = weights_offset(like);
  Routing routing = like;
  std::byte* choices = take(kChoices, weights_at + pairs);
  routing.chosen = reinterpret_cast<int32_t*>(choices);
  routing.weights = reinterpret_cast<float*>(choices + weights_at);
  routing.order = reinterpret_cast<int32_t*>(take(kOrder, pairs));
  routing.offsets = reinterpret_cast<int32_t*>(take(kOffsets, static_cast<size_t>(like.groups + 1) * sizeof(int32_t)));
  return routing;
}

size_t HostSide::bytes(int begin, int end) const {
  size_t sum = 0;
  for (int i = begin; i < end; ++i) sum += Arena::padded(spaces_[static_cast<size_t>(i)].bytes);
  return sum;
}

size_t HostSide::bytes() const { return bytes(0, kBuffers); }

void HostSide::place(int begin, int end, Arena& arena) {
  for (int i = begin; i < end; ++i) {
    Space& space = spaces_[static_cast<size_t>(i)];
    space.data = arena.take(space.bytes);
  }
}

HostSide::Stage HostSide::next_stage(size_t bytes) {
  next_stage_ = (next_stage_ + 1) % CopyQueue::kStages;
  if (plain_ == nullptr) {
    stage_bytes_ = std::max(stage_bytes_, Arena::padded(bytes));
    return {next_stage_, nullptr};
  }
  MR_ASSERT(bytes <= stage_bytes_);
  return {next_stage_, stages_at_ + static_cast<size_t>(next_stage_) * stage_bytes_};
}

GroupedWeights HostSide::fill(const Stage& stage, std::byte* at, const Grouped& streamed, int64_t first,
                              int64_t count) {
  GroupedWeights weights = streamed.weights;
  auto& addresses = addresses_[static_cast<size_t>(stage.index)][streamed.sum ? 1 : 0];
  addresses.resize(std::max(addresses.size(), static_cast<size_t>(weights.groups)));  // grows in dry passes only
  weights.groups = count;
  weights.data = std::span(addresses).first(static_cast<size_t>(count));
  if (at == nullptr) return weights;
  for (int64_t i = 0; i < count; ++i) addresses[static_cast<size_t>(i)] = at + static_cast<size_t>(i) * weights.stride;
  queue_->fill(stage.index, at, streamed.each[static_cast<size_t>(first)], static_cast<size_t>(count) * weights.stride);
  return weights;
}

std::vector<std::byte*>& HostSide::fill(const Stage& stage, const Linear& streamed) {
  parts_.resize(std::max(parts_.size(), streamed.parts.size()));  // grows in dry passes only
  std::byte* at = stage.at;
  for (size_t i = 0; i < streamed.parts.size(); ++i) {
    const LinearWeights& weights = streamed.parts[i].weights;
    const size_t bytes = bytes_of(weights);
    parts_[i] = at;
    if (at == nullptr) continue;
    queue_->fill(stage.index, at, weights.data, bytes);
    at += Arena::padded(bytes);
  }
  return parts_;
}

bool HostSide::begin_recording() {
  if (!device_.begin_recording()) return false;
  step_ = std::make_unique<StepRecording>();
  return true;
}

void HostSide::cut(std::function<void()> work) {
  auto part = device_.end_recording();
  if (part == nullptr) fail(ErrorKind::OutOfMemory, "the GPU lacks memory for a recorded step");
  step_->add(std::move(part));
  step_->add(std::make_unique<HostWork>(std::move(work)));
  if (!device_.begin_recording()) fail(ErrorKind::Unsupported, "the GPU does not go on recording");
}

std::unique_ptr<Recording> HostSide::end_recording() {
  auto step = std::exchange(step_, nullptr);
  auto last = device_.end_recording();
  if (last == nullptr) return nullptr;
  step->add(std::move(last));
  return step;
}

void HostSide::drop_recording() noexcept {
  step_.reset();
  device_.drop_recording();
}

void HostSide::allocate() {
  pinned_ = std::make_unique<Arena>("rows that the GPU hands over", bytes(0, kPinned), device_.staging());
  plain_ = std::make_unique<Arena>("rows of experts in host memory", bytes(kPinned, kBuffers));
  stages_ = std::make_unique<Arena>("stages of streamed weights", device_bytes(), device_.memory());
  stages_at_ = stages_->take(device_bytes());
  place(0, kPinned, *pinned_);
  place(kPinned, kBuffers, *plain_);
}

}  // namespace millrace
