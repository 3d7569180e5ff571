// The metadata of a GGUF file: keys and values in file order, with lookup by key.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/gguf_value.h"

namespace millrace {

class GgufMetadata {
 public:
  struct Entry {
    std::string_view key;
    GgufValue value;
  };

  explicit GgufMetadata(std::string origin) : origin_(std::move(origin)) {}
  void add(std::string_view key, GgufValue value);  // a duplicate key is a bad file

  std::span<const Entry> entries() const { return entries_; }
  const GgufValue* find(std::string_view key) const;
  const std::string& origin() const { return origin_; }

  // Absent: nullopt. Present with another type: an error that names file and key.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  std::optional<std::vector<std::string_view>> strings(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;

 private:
  std::string origin_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace millrace
