// Who may use the server. Keys are kept as hashes and compared in constant time; they are never logged.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

class ApiKeys {
 public:
  // Lines of "KEY" or "NAME KEY"; empty lines and those that begin with # do not count. Throws Usage where a line is
  // neither, or a key is shorter than 8 characters. `origin` stands in messages.
  void add(std::string_view lines, const std::string& origin);

  bool empty() const { return keys_.empty(); }

  // The name of the key in an Authorization header ("Bearer KEY"); nothing: it is none of ours.
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
