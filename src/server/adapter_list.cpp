#include "server/adapter_list.h"

namespace millrace {

AdapterList::AdapterList(std::vector<ServedAdapter> adapters) {
  for (ServedAdapter& adapter : adapters) put(std::move(adapter));
}

void AdapterList::put(ServedAdapter adapter) {
  const std::lock_guard lock(mutex_);
  const std::string name = adapter.name;
  adapters_[name] = std::move(adapter);
}

bool AdapterList::remove(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) return false;
  adapters_.erase(found);
  return true;
}

std::optional<ServedAdapter> AdapterList::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<ServedAdapter> AdapterList::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<ServedAdapter> adapters;
  for (const auto& [name, adapter] : adapters_) adapters.push_back(adapter);
  return adapters;
}

std::vector<ServedAdapter> AdapterList::of_model(size_t model) const {
  std::vector<ServedAdapter> adapters = all();
  std::erase_if(adapters, [&](const ServedAdapter& adapter) { return adapter.model != model; });
  return adapters;
}

}  // namespace millrace
