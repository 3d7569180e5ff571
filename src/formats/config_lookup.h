// How Config looks up values in one convention.
#pragma once

#include <optional>
#include <string>

#include "formats/config.h"

namespace millrace {

class Config::Lookup {
 public:
  virtual ~Lookup() = default;
  virtual std::string spell(ConfigKey key) const = 0;  // as in the file; empty: no such key in this convention
  virtual std::optional<ConfigValue> find(const std::string& spelled) const = 0;
};

}  // namespace millrace
