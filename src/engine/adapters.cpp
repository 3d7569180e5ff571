#include "engine/adapters.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace millrace {

Adapters::Adapters(Device& device, bool enabled, size_t sites, DType format) : device_(device), enabled_(enabled) {
  table_.format = format;
  table_.ranks.resize(enabled ? sites : 0);
  table_.planned.resize(enabled ? sites : 0, 1);
}

void Adapters::expect_only(std::span<const std::pair<std::string, PackedAdapter>> adapters) {
  std::fill(table_.planned.begin(), table_.planned.end(), 0);
  for (const auto& [name, packed] : adapters) {
    for (const PackedAdapter::Layer& layer : packed.layers) table_.planned[static_cast<size_t>(layer.site)] = 1;
  }
}

size_t Adapters::table_bytes(size_t sites) { return sites * AdapterTable::kSlots * sizeof(LoraWeights); }

void Adapters::allocate() {
  if (!enabled_) return;
  const size_t bytes = table_bytes(table_.ranks.size());
  table_memory_ = std::make_unique<Arena>("table of adapters", bytes, device_.memory());
  table_.weights = reinterpret_cast<LoraWeights*>(table_memory_->take(bytes));
  const std::vector<LoraWeights> none(AdapterTable::kSlots);
  for (size_t site = 0; site < table_.ranks.size(); ++site) {
    device_.memory().write(reinterpret_cast<std::byte*>(table_.weights + site * AdapterTable::kSlots),
                           reinterpret_cast<const std::byte*>(none.data()), none.size() * sizeof(LoraWeights));
  }
}

PackedAdapter Adapters::read(const std::filesystem::path& path, const Weights& weights, const Model& model) const {
  if (!enabled_) fail(ErrorKind::Usage, "the model was loaded without adapters");
  PackedAdapter packed = pack_adapter(read_adapter(path), weights, model, table_.format);
  for (const PackedAdapter::Layer& layer : packed.layers) {
    if (table_.planned[static_cast<size_t>(layer.site)] == 0)
      fail(ErrorKind::Usage, "{}: changes layers that no adapter given at load changes", packed.origin);
  }
  return packed;
}

void Adapters::write(int site, int32_t slot, const LoraWeights& weights) {
  LoraWeights* to = table_.weights + int64_t{site} * AdapterTable::kSlots + slot;
  device_.memory().write(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(&weights),
                         sizeof weights);
}

void Adapters::update_ranks() {
  std::vector<int64_t> ranks(table_.ranks.size());
  for (const auto& adapter : resident_) {
    for (const Adapter::Site& at : adapter->sites) {
      int64_t& most = ranks[static_cast<size_t>(at.site)];
      most = std::max(most, at.rank);
    }
  }
  if (ranks == table_.ranks) return;
  table_.ranks = std::move(ranks);
  ++version_;
}

int32_t Adapters::free_slot() const {
  for (int32_t slot = 0; slot < AdapterTable::kSlots; ++slot) {
    const auto has = [&](const auto& adapter) { return adapter->slot == slot; };
    if (std::none_of(resident_.begin(), resident_.end(), has)) return slot;
  }
  fail(ErrorKind::Busy, "{} adapters are loaded already", AdapterTable::kSlots);
}

void Adapters::place(const std::string& name, const PackedAdapter& packed) {
  free_unused();
  auto adapter = std::make_shared<Adapter>();
  adapter->name = name;
  adapter->origin = packed.origin;
  adapter->key = fmt::format("{}#{}", name, ++placed_);
  adapter->slot = free_slot();
  adapter->rank = packed.rank;
  adapter->bytes = packed.bytes.size();
  adapter->memory = std::make_unique<Arena>("an adapter", packed.bytes.size(), device_.memory());
  std::byte* base = adapter->memory->take(packed.bytes.size());
  device_.memory().write(base, packed.bytes.data(), packed.bytes.size());
  for (const PackedAdapter::Layer& layer : packed.layers) {
    write(layer.site, adapter->slot, layer.at(base));
    adapter->sites.push_back({layer.site, layer.weights.rank});
  }
  resident_.push_back(adapter);
  update_ranks();
  const std::lock_guard lock(mutex_);
  names_[name] = std::move(adapter);
}

void Adapters::free_unused() {
  const auto is_unused = [](const auto& adapter) { return adapter.use_count() == 1; };
  if (std::none_of(resident_.begin(), resident_.end(), is_unused)) return;
  device_.finish();  // a row whose sequence ended may still be computed
  for (auto at = resident_.begin(); at != resident_.end();) {
    if (!is_unused(*at)) {
      ++at;
      continue;
    }
    for (const Adapter::Site& of : (*at)->sites) write(of.site, (*at)->slot, {});
    at = resident_.erase(at);
  }
  update_ranks();
}

std::shared_ptr<const Adapter> Adapters::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : found->second;
}

bool Adapters::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return names_.erase(name) > 0;
}

std::vector<std::shared_ptr<const Adapter>> Adapters::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Adapter>> adapters;
  for (const auto& [name, adapter] : names_) adapters.push_back(adapter);
  return adapters;
}

}  // namespace millrace
