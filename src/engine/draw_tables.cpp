#include "engine/draw_tables.h"

#include <algorithm>

namespace millrace {
namespace {

// Penalties change one logit per distinct token of a sequence: room for a few hundred long sequences.
constexpr int32_t kMostChanges = 1 << 18;

size_t row_bytes_of(int64_t rows) { return Arena::padded(static_cast<size_t>(rows) * sizeof(DrawRow)); }
constexpr size_t kChangeBytes = size_t{kMostChanges} * sizeof(LogitChange);

template <class T>
std::byte* as_bytes(T* data) {
  return reinterpret_cast<std::byte*>(data);
}

}  // namespace

size_t DrawTables::bytes(int64_t logit_rows) { return row_bytes_of(logit_rows) + kChangeBytes; }

bool DrawTables::can_draw(const Ops& ops, int64_t logit_rows, int64_t vocab) {
  const SampleOp::Problem problem{logit_rows, vocab};
  const auto& kernels = ops.kernels().of<SampleOp>();
  return std::any_of(kernels.begin(), kernels.end(),
                     [&](const auto* kernel) { return kernel->can_run(problem, ops.hardware()); });
}

DrawTables::DrawTables(const Ops& ops, bool on_device, int64_t logit_rows, int64_t vocab)
    : device_(ops.device()), usable_(on_device && can_draw(ops, logit_rows, vocab)) {
  Device& device = device_;
  if (!usable_) return;
  const auto take = [&](Memory& memory, DrawRow*& rows, LogitChange*& changes) {
    auto arena = std::make_unique<Arena>("draws", bytes(logit_rows), memory);
    rows = reinterpret_cast<DrawRow*>(arena->take(row_bytes_of(logit_rows)));
    changes = reinterpret_cast<LogitChange*>(arena->take(kChangeBytes));
    return arena;
  };
  placed_ = take(device.memory(), placed_rows_, placed_changes_);
  for (Slot& slot : slots_) {
    slot.arena = take(device.staging(), slot.rows, slot.changes);
    std::fill_n(slot.rows, logit_rows, DrawRow());
  }
}

void DrawTables::clear() {
  std::fill_n(host_->rows, host_->used_rows, DrawRow());
  host_->used_rows = host_->used_changes = 0;
}

bool DrawTables::set(int64_t row, const Sampler& sampler, int later, int count) {
  const int64_t used_rows = host_->used_rows;
  const int32_t used_changes = host_->used_changes;
  for (int i = 0; i < count; ++i) {
    if (set_one(row + i, sampler, later + i)) continue;
    std::fill_n(host_->rows + row, i, DrawRow());  // the host draws, so the device must not change these logits
    host_->used_rows = used_rows;
    host_->used_changes = used_changes;
    return false;
  }
  return true;
}

bool DrawTables::set_one(int64_t row, const Sampler& sampler, int later) {
  Slot& slot = *host_;
  const std::span room(slot.changes + slot.used_changes, static_cast<size_t>(kMostChanges - slot.used_changes));
  const auto described = sampler.describe(room, later);
  if (!described) return false;
  DrawRow& to = slot.rows[row];
  to = *described;
  for (int32_t* at : {&to.repeated, &to.counted, &to.biased, &to.end}) *at += slot.used_changes;
  slot.used_changes = to.end;
  slot.used_rows = std::max(slot.used_rows, row + 1);
  return true;
}

void DrawTables::send(int64_t rows) {
  if (!any()) return;
  device_.enqueue_write(as_bytes(placed_rows_), as_bytes(host_->rows), static_cast<size_t>(rows) * sizeof(DrawRow));
  if (host_->used_changes > 0)
    device_.enqueue_write(as_bytes(placed_changes_), as_bytes(host_->changes),
                          static_cast<size_t>(host_->used_changes) * sizeof(LogitChange));
}

}  // namespace millrace
