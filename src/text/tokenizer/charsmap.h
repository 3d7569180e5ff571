// The "precompiled_charsmap" of SentencePiece: a double-array trie from texts to what they are normalized to.
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

  // What replaces `text` when one of its prefixes is in the map: the replacement of the shortest. (Hugging Face looks
  // up whole grapheme clusters this way; the rest of the cluster is lost. We do as it does.)
  std::optional<std::string_view> find(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends with a zero
};

}  // namespace millrace
