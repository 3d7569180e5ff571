#include "text/tokenizer/wordpiece.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

void push_unknown(const Vocabulary& vocabulary, const std::string& token, std::vector<int32_t>& ids) {
  const int32_t id = vocabulary.find(token);
  if (id == Vocabulary::kNone) {
    fail(ErrorKind::BadFile, "the text needs the tokenizer's unknown token '{}', which its vocabulary lacks", token);
  }
  ids.push_back(id);
}

// The tokens that begin with `prefix`, with the prefix removed.
ByteTrie trie_of(const Vocabulary& vocabulary, const std::string& prefix) {
  constexpr size_t kLongestToken = 1024;
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    std::string_view text = vocabulary.text(id);
    if (!text.starts_with(prefix) || vocabulary.find(text) != id) continue;
    if (text.size() > kLongestToken) {
      fail(ErrorKind::BadFile, "the tokenizer's token {} is {} bytes long", id, text.size());
    }
    text.remove_prefix(prefix.size());
    if (!text.empty()) entries.emplace_back(text, id);
  }
  return ByteTrie(std::move(entries));
}

}  // namespace

WordPiece::WordPiece(std::shared_ptr<const Vocabulary> vocabulary, std::string unknown_token,
                     const std::string& continuing_prefix, size_t longest_word)
    : vocabulary_(std::move(vocabulary)),
      unknown_token_(std::move(unknown_token)),
      longest_word_(longest_word),
      beginnings_(trie_of(*vocabulary_, "")),
      continuations_(trie_of(*vocabulary_, continuing_prefix)) {}

void WordPiece::encode(std::string_view word, std::vector<int32_t>& ids, TokenModelScratch&) const {
  const size_t characters = count_characters(word);
  const size_t before = ids.size();
  bool known = characters <= longest_word_;
  for (size_t begin = 0; known && begin < word.size();) {
    const auto found = (begin == 0 ? beginnings_ : continuations_).longest_prefix(word.substr(begin));
    known = found.length > 0;
    if (known) ids.push_back(found.value);
    begin += found.length;
  }
  if (known) return;
  ids.resize(before);
  push_unknown(*vocabulary_, unknown_token_, ids);
}

void WordLevel::encode(std::string_view word, std::vector<int32_t>& ids, TokenModelScratch&) const {
  const int32_t id = vocabulary_->find(word);
  if (id != Vocabulary::kNone) return ids.push_back(id);
  push_unknown(*vocabulary_, unknown_token_, ids);
}

}  // namespace millrace
