#include "cache/state_cache.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/populate.h"

namespace millrace {
namespace {

int32_t blocks_for(const StateOptions& options) {
  return (options.tokens + options.block_size - 1) / options.block_size;
}

size_t rows_bytes(int kv_heads, int dim, const StateOptions& options) {
  return static_cast<size_t>(blocks_for(options)) * static_cast<size_t>(options.block_size) *
         static_cast<size_t>(kv_heads) * row_bytes(options.dtype, dim);
}

size_t total_bytes(const StateLayout& layout, const StateOptions& options) {
  size_t total = Arena::padded(layout.bytes_per_slot() * static_cast<size_t>(options.slots));
  for (const auto& shape : layout.paged()) {
    total += Arena::padded(rows_bytes(shape.kv_heads, shape.key_dim, options));
    if (!shape.latent) total += Arena::padded(rows_bytes(shape.kv_heads, shape.value_dim, options));
  }
  return total;
}

}  // namespace

StateCache::StateCache(StateLayout layout, const StateOptions& options, Memory& memory)
    : layout_(std::move(layout)),
      options_(options),
      blocks_(blocks_for(options)),
      slots_(layout_.slots().empty() ? 0 : options.slots),
      memory_(memory),
      arena_("the KV cache", total_bytes(layout_, options), memory) {
  for (const auto& shape : layout_.paged()) {
    KvLayer layer{options.dtype,   shape.kv_heads,     shape.key_dim,
                  shape.value_dim, options.block_size, blocks_for(options)};
    layer.latent = shape.latent;
    layer.keys = arena_.take(rows_bytes(shape.kv_heads, shape.key_dim, options));
    layer.values = shape.latent ? layer.keys : arena_.take(rows_bytes(shape.kv_heads, shape.value_dim, options));
    paged_.push_back(layer);
  }
  const auto& shapes = layout_.paged();
  const bool alike = std::all_of(shapes.begin(), shapes.end(), [&](const auto& shape) { return shape == shapes[0]; });
  if (alike && paged_.size() > 1) layer_bytes_ = static_cast<size_t>(paged_[1].keys - paged_[0].keys);
  records_ = arena_.take(layout_.bytes_per_slot() * static_cast<size_t>(slots_.size()));
}

void StateCache::populate(ThreadPool& pool) {
  std::byte* first = paged_.empty() ? records_ : paged_.front().keys;
  if (arena_.used() > 0) millrace::populate(first, arena_.used(), pool);
}

// States of one shape lie at equal distances, so that a device copies their pages at once: one copy for each would take
// longer to launch than to run.
void StateCache::copy_page(int32_t from, int32_t to) {
  const bool at_once = layer_bytes_ > 0;
  for (const auto& layer : std::span(paged_).first(at_once ? 1 : paged_.size())) {
    const auto copy = [&](std::byte* rows, size_t bytes) {
      memory_.copy_ranges(rows + static_cast<size_t>(to) * bytes, rows + static_cast<size_t>(from) * bytes, bytes,
                          layer_bytes_, at_once ? paged_.size() : 1);
    };
    copy(layer.keys, layer.key_offset(1, 0, 0));
    if (!layer.latent) copy(layer.values, layer.value_offset(1, 0, 0));
  }
  if (mirror_ != nullptr) mirror_->copy_page(from, to);
}

SlotView StateCache::slot(int i) const {
  const SlotShape& shape = layout_.slots()[static_cast<size_t>(i)];
  std::byte* first = records_ != nullptr ? records_ + layout_.slot_offset(i) : nullptr;  // null: not allocated yet
  return {shape.dtype, shape.elements, first, layout_.bytes_per_slot()};
}

Slot StateCache::new_slot() {
  Slot slot = slots_.take();
  if (slot) clear_slot(slot.id());
  return slot;
}

void StateCache::copy_slot(int32_t from, int32_t to) {
  MR_ASSERT(from >= 0 && from < slots_.size() && to >= 0 && to < slots_.size());
  const size_t bytes = layout_.bytes_per_slot();
  memory_.copy(records_ + static_cast<size_t>(to) * bytes, records_ + static_cast<size_t>(from) * bytes, bytes);
}

void StateCache::clear_slot(int32_t slot) {
  MR_ASSERT(slot >= 0 && slot < slots_.size());
  const size_t bytes = layout_.bytes_per_slot();
  memory_.clear(records_ + static_cast<size_t>(slot) * bytes, bytes);
}

}  // namespace millrace
