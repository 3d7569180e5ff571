#include "engine/draw_tables.h"

#include <algorithm>

namespace millrace {
namespace {

// Penalties change as many logits as a sequence has different tokens: room for some hundred long ones.
constexpr int32_t kMostChanges = 1 << 18;

size_t row_bytes_of(int64_t rows) { return Arena::padded(static_cast<size_t>(rows) * sizeof(DrawRow)); }
constexpr size_t kChangeBytes = size_t{kMostChanges} * sizeof(LogitChange);

template <class T>
std::byte* as_bytes(T* data) {
  return reinterpret_cast<std::byte*>(data);
}

}  // namespace

size_t DrawTables::bytes(int64_t logit_rows) { return row_bytes_of(logit_rows) + kChangeBytes; }

DrawTables::DrawTables(Device& device, int64_t logit_rows, int64_t vocab, const KernelSet& kernels) : device_(device) {
  const SampleOp::Problem problem{logit_rows, vocab};
  usable_ = !device.is_host() && std::any_of(kernels.sample.begin(), kernels.sample.end(), [&](const auto* kernel) {
    return kernel->can_run(problem, device.hardware());
  });
  if (!usable_) return;
  const auto take = [&](Memory& memory, DrawRow*& rows, LogitChange*& changes) {
    auto arena = std::make_unique<Arena>("draws", bytes(logit_rows), memory);
    rows = reinterpret_cast<DrawRow*>(arena->take(row_bytes_of(logit_rows)));
    changes = reinterpret_cast<LogitChange*>(arena->take(kChangeBytes));
    return arena;
  };
  host_ = take(device.staging(), rows_, changes_);
  placed_ = take(device.memory(), placed_rows_, placed_changes_);
  std::fill_n(rows_, logit_rows, DrawRow());
}

void DrawTables::clear() {
  std::fill_n(rows_, used_rows_, DrawRow());
  used_rows_ = used_changes_ = 0;
}

bool DrawTables::set(int64_t row, const Sampler& sampler) {
  const std::span room(changes_ + used_changes_, static_cast<size_t>(kMostChanges - used_changes_));
  const auto described = sampler.describe(room);
  if (!described) return false;
  rows_[row] = *described;
  for (int32_t* at : {&rows_[row].repeated, &rows_[row].counted, &rows_[row].biased, &rows_[row].end})
    *at += used_changes_;
  used_changes_ = rows_[row].end;
  used_rows_ = std::max(used_rows_, row + 1);
  return true;
}

void DrawTables::send(int64_t rows) {
  if (!any()) return;
  device_.enqueue_write(as_bytes(placed_rows_), as_bytes(rows_), static_cast<size_t>(rows) * sizeof(DrawRow));
  if (used_changes_ > 0)
    device_.enqueue_write(as_bytes(placed_changes_), as_bytes(changes_),
                          static_cast<size_t>(used_changes_) * sizeof(LogitChange));
}

}  // namespace millrace
