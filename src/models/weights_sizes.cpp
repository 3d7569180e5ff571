// The memory that declared weights will take, on the device and on the host.
#include "dataflow/layout.h"
#include "models/weights.h"

namespace millrace {

// The embedding table that a tied output matrix can share; requires the layout of the file.
const WeightView* Weights::table_like(const Pending& pending) const {
  const LinearWeights& w = pending.weights();
  if (pending.linear->on_host || pending.streamed || pending.sources.size() != 1 ||
      w.layout->bytes(w.format, w.n, w.k) != pending.sources[0].bytes())
    return nullptr;
  if (!w.layout->keeps_rows(w.format)) return nullptr;
  for (const auto& table : tables_) {
    if (table.data == pending.sources[0].data) return &table;
  }
  return nullptr;
}

// A layout that reads rows in place reads a copy of rows that the file stores in another order.
size_t Weights::Pending::bytes() const { return bytes_of(weights()); }

size_t Weights::PendingGroups::bytes() const { return grouped->weights.stride * grouped->each.size(); }

std::vector<Weights::Unit> Weights::units() const {
  std::vector<Unit> units(units_);
  for (const auto& pending : pending_) {
    if (pending.streamed || table_like(pending) != nullptr) continue;
    units[pending.unit].bytes += Arena::padded(pending.bytes());
    units[pending.unit].bytes_of_a_row += static_cast<double>(pending.bytes());
  }
  for (const auto& pending : pending_groups_) {
    const Grouped& g = *pending.grouped;
    if (pending.unit == kNoUnit || pending.streamed) continue;
    units[pending.unit].experts = true;
    units[pending.unit].groups = g.all_groups;
    units[pending.unit].bytes += pending.bytes();
    units[pending.unit].bytes_of_a_row += static_cast<double>(pending.bytes()) * g.share_of_a_row();
  }
  for (const InPlace& part : in_place_) {
    if (part.unit == kNoUnit) continue;
    units[part.unit].experts |= part.groups > 1;
    units[part.unit].groups = std::max(units[part.unit].groups, part.groups);
    units[part.unit].bytes += part.view.bytes();
    units[part.unit].bytes_of_a_row += part.share * static_cast<double>(part.view.bytes());
  }
  return units;
}

size_t Weights::host_bytes() const {
  size_t total = packed_bytes(true);
  for (const InPlace& part : in_place_) total += part.on_host && !part.mapped ? part.view.bytes() : 0;
  return total;
}

size_t Weights::host_expert_bytes() const {
  size_t total = 0;
  for (const auto& pending : pending_groups_) {
    if (pending.grouped->on_host && !pending.streamed) total += pending.bytes();
  }
  for (const InPlace& part : in_place_) total += part.on_host && part.groups > 1 ? part.view.bytes() : 0;
  return total;
}

size_t Weights::streamed_bytes() const {
  size_t total = 0;
  for (const auto& pending : pending_groups_) total += pending.streamed ? pending.bytes() : 0;
  for (const auto& pending : pending_) total += pending.streamed ? Arena::padded(pending.bytes()) : 0;
  return total;
}

Weights::Unit Weights::mapped_experts() const {
  Unit sum{.experts = true};
  for (const InPlace& part : in_place_) {
    if (!part.mapped) continue;
    sum.bytes += part.view.bytes();
    sum.bytes_of_a_row += part.share * static_cast<double>(part.view.bytes());
  }
  return sum;
}

size_t Weights::packed_bytes(bool on_host) const {
  size_t total = vector_bytes(on_host);
  for (const auto& pending : pending_) {
    if (pending.streamed) continue;
    if (pending.linear->on_host == on_host && table_like(pending) == nullptr) total += Arena::padded(pending.bytes());
  }
  for (const auto& pending : pending_groups_)
    total += pending.grouped->on_host == on_host && !pending.streamed ? pending.bytes() : 0;
  if (!on_host && on_device()) {
    for (const auto& table : tables_) total += Arena::padded(table.bytes());
  }
  return total;
}

std::optional<DType> Weights::fp8_packed_as() const {
  for (const auto& pending : pending_) {
    const auto& w = pending.linear->parts[pending.part].weights;
    if (w.format == DType::F8_E4M3) return w.layout->stored(w.format);
  }
  return std::nullopt;
}

size_t Weights::repack_bytes() const {
  size_t most = 0;
  for (const auto& pending : pending_) {
    size_t bytes = 0;
    for (const auto& view : pending.sources) bytes += source_.fetched_bytes(view);
    most = std::max(most, bytes);
  }
  for (const auto& pending : pending_groups_) {  // expert by expert
    size_t bytes = 0;
    for (const auto& view : pending.sources[0]) bytes += source_.fetched_bytes(view);
    most = std::max(most, bytes);
  }
  return most;
}

size_t Weights::in_place_bytes() const {
  size_t total = 0;
  for (const InPlace& part : in_place_) total += part.on_host || part.mapped ? 0 : part.view.bytes();
  if (!on_device()) {
    for (const auto& table : tables_) total += table.bytes();
  }
  return total;
}

}  // namespace millrace
