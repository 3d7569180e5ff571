#include "models/batch_tables.h"

#include <algorithm>

#include "base/error.h"

namespace millrace {
namespace {

using Slice = SliceTables::Slice;

// Reserves equal offsets in the host's buffer and in the kernels' buffer.
struct Cursor {
  std::byte *host, *placed;
  size_t used = 0;

  template <class T>
  std::pair<T*, T*> take(int64_t count) {
    const size_t at = used;
    used += (static_cast<size_t>(count) * sizeof(T) + 15) / 16 * 16;
    return {offset<T>(host, at), offset<T>(placed, at)};
  }

  // Sizes are counted without buffers, and a null pointer has no offsets.
  template <class T>
  static T* offset(std::byte* buffer, size_t at) {
    return buffer != nullptr ? reinterpret_cast<T*>(buffer + at) : nullptr;
  }
};

bool is_counting(std::span<const int32_t> rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] != static_cast<int32_t>(i)) return false;
  }
  return true;
}

// A step without adapters has no tables of them.
void place_adapters(const Batch& batch, int32_t usual, Cursor& cursor, PlacedBatch& placed) {
  const auto of_sequence = [&](size_t i) {
    const int32_t own = i < batch.sequence_adapters.size() ? batch.sequence_adapters[i] : -1;
    return own >= 0 ? own : usual;
  };
  bool any = false;
  for (size_t i = 0; i < batch.sequences.size(); ++i) any |= of_sequence(i) >= 0;
  if (!any) return;
  const auto [rows, placed_rows] = cursor.take<int32_t>(std::ssize(batch.tokens));
  const auto [wanted, placed_wanted] = cursor.take<int32_t>(std::ssize(batch.logit_rows));
  for (size_t i = 0; i < batch.sequences.size(); ++i)
    std::fill_n(rows + batch.sequences[i].first_row, batch.sequences[i].rows, of_sequence(i));
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) wanted[i] = rows[batch.logit_rows[i]];
  placed.adapters = {placed_rows, batch.tokens.size()};
  placed.wanted_adapters = {placed_wanted, batch.logit_rows.size()};
}

}  // namespace

size_t BatchTables::bytes(const Sizes& s) {
  Cursor cursor{nullptr, nullptr};
  for (int i = 0; i < 7; ++i) cursor.take<int32_t>(s.rows);
  for (int i = 0; i < 2; ++i) cursor.take<int32_t>(s.logit_rows);
  cursor.take<Slice>(s.sequences);
  cursor.take<int32_t>(s.sequences * s.pages);
  cursor.take<int32_t>(s.sequences);
  return cursor.used;
}

BatchTables::BatchTables(const Sizes& sizes, int block_size, Device& device)
    : device_(device),
      block_size_(block_size),
      host_("batch tables", Device::kStepsAtOnce * Arena::padded(bytes(sizes)), device.staging()),
      placed_("batch tables", device.is_host() ? 0 : bytes(sizes), device.memory()),
      host_data_{host_.take(bytes(sizes)), host_.take(bytes(sizes))},
      placed_data_(device.is_host() ? nullptr : placed_.take(bytes(sizes))) {}

void BatchTables::fill_rows(const Batch& batch, int32_t* positions, int32_t* horizons, int32_t* types,
                            int32_t* row_slots) const {
  for (const auto& slice : batch.sequences) {
    for (int32_t i = 0; i < slice.rows; ++i) {
      const int32_t row = slice.first_row + i, position = slice.past + i;
      positions[row] = position;
      horizons[row] = std::max(slice.horizon, slice.past + slice.rows);
      types[row] = slice.second > 0 && position >= slice.second ? 1 : 0;
      if (device_.is_host()) continue;
      row_slots[row] = slice.pages[static_cast<size_t>(position / block_size_)] * block_size_ + position % block_size_;
    }
  }
}

PlacedBatch BatchTables::place(const Batch& batch, int64_t pages, int slot) {
  slot_ = slot;
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const auto sequences = static_cast<int64_t>(batch.sequences.size());
  const auto logit_rows = static_cast<int64_t>(batch.logit_rows.size());
  Cursor cursor{host_data_[slot], device_.is_host() ? host_data_[slot] : placed_data_};
  const auto [positions, placed_positions] = cursor.take<int32_t>(rows);
  const auto [horizons, placed_horizons] = cursor.take<int32_t>(rows);
  const auto [types, placed_types] = cursor.take<int32_t>(rows);
  const auto [row_slots, placed_row_slots] = cursor.take<int32_t>(rows);
  fill_rows(batch, positions, horizons, types, row_slots);
  PlacedBatch placed{batch};
  placed.positions = {placed_positions, static_cast<size_t>(rows)};
  placed.horizons = {placed_horizons, static_cast<size_t>(rows)};
  placed.types = {placed_types, static_cast<size_t>(rows)};
  placed.wants_every_row = logit_rows == rows && is_counting(batch.logit_rows);
  place_adapters(batch, usual_adapter, cursor, placed);
  if (device_.is_host()) return placed;

  const auto [tokens, placed_tokens] = cursor.take<int32_t>(rows);
  const auto [features, placed_features] = cursor.take<int32_t>(std::ssize(batch.features.rows));
  const auto [logits, placed_logits] = cursor.take<int32_t>(logit_rows);
  const auto [slices, placed_slices] = cursor.take<Slice>(sequences);
  const auto [table, placed_table] = cursor.take<int32_t>(sequences * pages);
  const auto [slots, placed_slots] = cursor.take<int32_t>(sequences);
  std::copy(batch.tokens.begin(), batch.tokens.end(), tokens);
  std::copy(batch.features.rows.begin(), batch.features.rows.end(), features);
  std::copy(batch.logit_rows.begin(), batch.logit_rows.end(), logits);
  for (int64_t i = 0; i < sequences; ++i) {
    const SequenceSlice& s = batch.sequences[static_cast<size_t>(i)];
    slices[i] = {s.first_row, s.rows, s.past, s.past + s.rows};
    slots[i] = s.slot;
    const size_t used = static_cast<size_t>((s.past + s.rows + block_size_ - 1) / block_size_);
    MR_ASSERT(static_cast<int64_t>(used) <= pages);
    std::copy_n(s.pages.begin(), used, table + i * pages);
    if (s.rows > 1)
      std::fill(table + i * pages + used, table + (i + 1) * pages, 0);  // cuDNN may read past a prompt's pages
    placed.tables.longest_slice = std::max(placed.tables.longest_slice, s.rows);
  }
  placed.tokens = {placed_tokens, static_cast<size_t>(rows)};
  placed.features.rows = {placed_features, batch.features.rows.size()};
  placed.logit_rows = {placed_logits, static_cast<size_t>(logit_rows)};
  placed.tables.slices = placed_slices;
  placed.tables.slots = placed_slots;
  placed.tables.pages = placed_table;
  placed.tables.page_stride = pages;
  placed.tables.positions = placed_positions;
  placed.tables.row_slots = placed_row_slots;
  used_ = cursor.used;
  return placed;
}

void BatchTables::send() {
  if (!device_.is_host()) device_.enqueue_write(placed_data_, host_data_[slot_], used_);
}

}  // namespace millrace
