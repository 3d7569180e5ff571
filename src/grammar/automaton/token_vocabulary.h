// The vocabulary prepared for masks: tokens sorted by bytes, and token sets for the character sets of grammars.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/automaton/token_set.h"

namespace millrace {

class TokenVocabulary {
 public:
  // The bytes of each id; empty: never allowed.
  explicit TokenVocabulary(std::vector<std::string> tokens, std::vector<int32_t> end_tokens);

  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  const std::string& bytes(int32_t token) const { return bytes_[static_cast<size_t>(token)]; }
  int32_t longest() const { return longest_; }  // longest token, in bytes
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  const TokenTrie& trie() const { return trie_; }
  // Pairs of ids with the same bytes: the first has the mask bit of the second.
  const std::vector<std::pair<int32_t, int32_t>>& twins() const { return twins_; }

  // The tokens whose bytes begin with the text, without twins.
  std::span<const TokenTrie::Token> starting_with(std::string_view text) const;
  // The tokens, without twins, that contain the text between two quotes.
  std::span<const int32_t> quoting(const std::string& text) const;

  // Token sets for these character sets, cached. Thread-safe.
  std::vector<std::shared_ptr<const TokenSet>> sets(std::span<const CodeSet> characters);

 private:
  std::vector<std::string> bytes_;
  int32_t longest_ = 0;
  std::vector<int32_t> end_tokens_;
  std::vector<TokenTrie::Token> sorted_;
  std::vector<std::pair<int32_t, int32_t>> twins_;
  TokenTrie trie_;
  std::unordered_map<std::string, std::vector<int32_t>> quoted_;  // by text between two quotes

  std::mutex lock_;
  std::list<std::pair<CodeSet, std::shared_ptr<const TokenSet>>> sets_;  // most recently used first
};

}  // namespace millrace
