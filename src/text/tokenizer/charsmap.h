// The "precompiled_charsmap" of SentencePiece: a double-array trie from strings to their normalized form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

class Charsmap {
 public:
  explicit Charsmap(std::string_view precompiled);  // throws BadFile

  // Returns the replacement of the shortest prefix of `text` in the map. Hugging Face looks up whole grapheme clusters
  // this way and loses the rest of the cluster; this function reproduces it.
  std::optional<std::string_view> find(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;  // zero-terminated strings
};

}  // namespace millrace
