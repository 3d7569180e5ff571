// API keys. They are stored as hashes, compared in constant time and never logged.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

class ApiKeys {
 public:
  // Lines of "KEY" or "NAME KEY"; empty lines and lines starting with # are skipped. Throws Usage for any other line,
  // or a key of fewer than 8 characters. `origin` appears in messages.
  void add(std::string_view lines, const std::string& origin);

  bool empty() const { return keys_.empty(); }

  // The name of the key in an Authorization header ("Bearer KEY"); nullopt: unknown key.
  std::optional<std::string> holder(std::string_view authorization) const;

 private:
  using Hash = std::array<unsigned char, 32>;
  struct Key {
    std::string name;
    Hash hash;
  };
  static Hash hash(std::string_view text);
  std::vector<Key> keys_;
};

}  // namespace millrace
