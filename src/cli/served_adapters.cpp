#include "cli/served_adapters.h"

#include <algorithm>

#include "base/error.h"
#include "cli/model_options.h"

namespace millrace {
namespace {

// Removes MODEL: from the argument and returns the model. A name may have colons itself, so the longest that fits
// counts.
size_t take_model(std::string& lora, const std::vector<NamedModel>& models) {
  size_t found = 0, longest = 0;
  std::string names;
  for (size_t i = 0; i < models.size(); ++i) {
    for (const std::string& name : models[i].names) {
      (names += names.empty() ? "" : ", ") += name;
      if (name.size() >= longest && lora.starts_with(name + ":")) found = i, longest = name.size() + 1;
    }
  }
  if (longest == 0 && models.size() > 1) {
    fail(ErrorKind::Usage, "--lora {}: with several models, say which one it changes, as MODEL:NAME=PATH; they are {}",
         lora, names);
  }
  lora.erase(0, longest);
  return found;
}

}  // namespace

std::vector<ServedAdapter> served_adapters(const std::vector<std::string>& loras,
                                           const std::vector<NamedModel>& models) {
  std::vector<ServedAdapter> adapters;
  for (std::string lora : loras) {
    const size_t model = take_model(lora, models);
    const auto [name, path] = parse_lora(lora);
    const auto is_ours = [&name = name](const ServedAdapter& other) { return other.name == name; };
    if (std::any_of(adapters.begin(), adapters.end(), is_ours))
      fail(ErrorKind::Usage, "--lora {}: the adapter name {} is given twice", lora, name);
    const auto has_it = [&name = name](const NamedModel& one) {
      return std::find(one.names.begin(), one.names.end(), name) != one.names.end();
    };
    if (std::any_of(models.begin(), models.end(), has_it))
      fail(ErrorKind::Usage, "--lora {}: {} is the name of a model", lora, name);
    adapters.push_back({.name = name, .path = path, .model = model});
  }
  return adapters;
}

}  // namespace millrace
