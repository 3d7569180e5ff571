#include "grammar/automaton/token_vocabulary.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kMostKeptSets = 24;
constexpr size_t kMostSetsOfOne = 6;  // per grammar; the largest are used

uint64_t size_of(const CodeSet& set) {
  uint64_t size = 0;
  for (const auto& [first, last] : set.ranges()) size += last - first + 1;
  return size;
}

}  // namespace

TokenVocabulary::TokenVocabulary(std::vector<std::string> tokens, std::vector<int32_t> end_tokens)
    : bytes_(std::move(tokens)), end_tokens_(std::move(end_tokens)) {
  const auto ends = [&](int32_t id) {
    return std::find(end_tokens_.begin(), end_tokens_.end(), id) != end_tokens_.end();
  };
  for (int32_t id = 0; id < static_cast<int32_t>(bytes_.size()); ++id) {
    const std::string& text = bytes(id);
    if (text.empty() || text.size() >= UINT16_MAX || ends(id)) continue;
    sorted_.push_back({text, id});
    longest_ = std::max(longest_, static_cast<int32_t>(text.size()));
  }
  std::stable_sort(sorted_.begin(), sorted_.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  size_t kept = 0;
  for (const TokenTrie::Token& token : sorted_) {
    if (kept > 0 && sorted_[kept - 1].bytes == token.bytes) {
      twins_.emplace_back(token.id, sorted_[kept - 1].id);
    } else {
      sorted_[kept++] = token;
    }
  }
  sorted_.resize(kept);
  trie_ = TokenTrie(sorted_);
  for (const TokenTrie::Token& token : sorted_) {
    size_t quote = token.bytes.find('"');
    while (quote != std::string_view::npos) {
      const size_t next = token.bytes.find('"', quote + 1);
      if (next == std::string_view::npos) break;
      std::vector<int32_t>& ids = quoted_[std::string(token.bytes.substr(quote + 1, next - quote - 1))];
      if (ids.empty() || ids.back() != token.id) ids.push_back(token.id);
      quote = next;
    }
  }
}

std::span<const TokenTrie::Token> TokenVocabulary::starting_with(std::string_view text) const {
  const auto before = [&](const TokenTrie::Token& token) { return token.bytes.substr(0, text.size()) < text; };
  const auto up_to = [&](const TokenTrie::Token& token) { return token.bytes.substr(0, text.size()) <= text; };
  const auto first = std::partition_point(sorted_.begin(), sorted_.end(), before);
  return {first, std::partition_point(first, sorted_.end(), up_to)};
}

std::span<const int32_t> TokenVocabulary::quoting(const std::string& text) const {
  const auto found = quoted_.find(text);
  return found == quoted_.end() ? std::span<const int32_t>() : std::span<const int32_t>(found->second);
}

std::vector<std::shared_ptr<const TokenSet>> TokenVocabulary::sets(std::span<const CodeSet> characters) {
  std::vector<CodeSet> largest(characters.begin(), characters.end());
  std::stable_sort(largest.begin(), largest.end(),
                   [](const auto& a, const auto& b) { return size_of(a) > size_of(b); });
  largest.resize(std::min(largest.size(), kMostSetsOfOne));
  std::vector<std::shared_ptr<const TokenSet>> found;
  const std::lock_guard guard(lock_);
  for (const CodeSet& set : largest) {
    const auto known = std::find_if(sets_.begin(), sets_.end(), [&](const auto& entry) { return entry.first == set; });
    if (known != sets_.end()) {
      sets_.splice(sets_.begin(), sets_, known);
    } else {
      sets_.emplace_front(set, TokenSet::make(set, sorted_, size()));
      if (sets_.size() > kMostKeptSets) sets_.pop_back();
    }
    if (sets_.front().second) found.push_back(sets_.front().second);
  }
  return found;
}

}  // namespace millrace
