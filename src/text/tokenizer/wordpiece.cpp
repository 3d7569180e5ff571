#include "text/tokenizer/wordpiece.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

void push_unknown(const Vocabulary& vocabulary, const std::string& token, std::vector<int32_t>& ids) {
  const int32_t id = vocabulary.find(token);
  if (id == Vocabulary::kNone) fail(ErrorKind::BadFile, "the text needs the tokenizer's unknown token '{}', which its vocabulary lacks", token);
  ids.push_back(id);
}

}  // namespace

void WordPiece::encode(std::string_view word, std::vector<int32_t>& ids, ModelScratch&) const {
  const auto characters = static_cast<size_t>(std::count_if(word.begin(), word.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  if (characters > longest_word_) return push_unknown(*vocabulary_, unknown_token_, ids);
  const size_t before = ids.size();
  for (size_t begin = 0; begin < word.size();) {
    int32_t id = Vocabulary::kNone;
    size_t end = std::min(word.size(), begin + vocabulary_->longest());
    while (end < word.size() && (word[end] & 0xC0) == 0x80) --end;
    for (; end > begin; end = previous_utf8(word, end)) {
      const std::string_view part = word.substr(begin, end - begin);
      id = begin == 0 ? vocabulary_->find(part) : vocabulary_->find(prefix_ + std::string(part));
      if (id != Vocabulary::kNone) break;
    }
    if (id == Vocabulary::kNone) {
      ids.resize(before);
      return push_unknown(*vocabulary_, unknown_token_, ids);
    }
    ids.push_back(id);
    begin = end;
  }
}

void WordLevel::encode(std::string_view word, std::vector<int32_t>& ids, ModelScratch&) const {
  const int32_t id = vocabulary_->find(word);
  if (id != Vocabulary::kNone) return ids.push_back(id);
  push_unknown(*vocabulary_, unknown_token_, ids);
}

}  // namespace millrace
