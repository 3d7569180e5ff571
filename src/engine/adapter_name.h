// The names of the adapters that a model is loaded with.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/load_options.h"

namespace millrace {

// The name of an adapter without one: its file or folder. A slash at the end of the path does not count.
inline std::string adapter_name(const std::filesystem::path& path) {
  const std::filesystem::path normal = path.lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).filename().string();
}

// Lists one more adapter. An empty `name` becomes adapter_name(path).
inline void add_adapter(std::vector<LoadOptions::AdapterPath>& adapters, std::string name, const std::string& path) {
  if (name.empty()) name = adapter_name(path);
  if (name.empty()) fail(ErrorKind::Usage, "the adapter '{}' needs a name and a path", path);
  const auto same = [&](const auto& other) { return other.name == name; };
  if (std::any_of(adapters.begin(), adapters.end(), same))
    fail(ErrorKind::Usage, "the adapter name {} is given twice", name);
  adapters.push_back({std::move(name), path});
}

}  // namespace millrace
