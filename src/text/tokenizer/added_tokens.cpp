#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

constexpr size_t kLongestToken = 4096;

// \w of Rust's regex: includes joiners, excludes numbers that are not digits.
bool is_in_word(char32_t code) {
  static const CodeTable table([] {
    CodeSet set = word_set();
    set.add(CodeSet{{0x200C, 0x200D}});
    return set;
  }());
  return table.contains(code);
}

bool word_before(std::string_view text, size_t at) {
  return at > 0 && is_in_word(decode_utf8(text.data() + previous_utf8(text, at)).code);
}
bool word_at(std::string_view text, size_t at) {
  return at < text.size() && is_in_word(decode_utf8(text.data() + at).code);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<const AddedToken*>& tokens, const std::vector<std::string>& texts)
    : tokens_(tokens) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (texts[i].size() > kLongestToken) {
      fail(ErrorKind::BadFile, "the tokenizer's added token {} is {} bytes long", tokens[i]->id, texts[i].size());
    }
    if (!texts[i].empty()) entries.emplace_back(texts[i], static_cast<int32_t>(i));
  }
  trie_ = ByteTrie(std::move(entries));
}

bool AddedTokenFinder::applies(const AddedToken& token, std::string_view text, size_t begin, size_t end) const {
  return !token.single_word || (!word_before(text, begin) && !word_at(text, end));
}

void AddedTokenFinder::split(std::string_view text, FunctionRef<bool(size_t begin, size_t end)> is_special,
                             FunctionRef<void(std::string_view stretch, const AddedToken* token)> visit) const {
  size_t done = 0;
  size_t space_end = 0;  // end of the white space scanned last; tokens may be white space themselves
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const ByteTrie::Found found = trie_.longest_prefix(text.substr(at));
    if (found.length == 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + found.length;
    const AddedToken& token = *tokens_[found.value];
    if (token.special && !is_special(begin, end)) {
      ++at;  // another token may begin inside of its text
      continue;
    }
    at = end;
    if (!applies(token, text, begin, end)) continue;
    while (token.lstrip && begin > done && is_white_space(decode_utf8(text.data() + previous_utf8(text, begin)).code)) {
      begin = previous_utf8(text, begin);
    }
    if (token.rstrip) {
      size_t stop = std::max(end, space_end);
      while (stop < text.size() && is_white_space(decode_utf8(text.data() + stop).code)) {
        stop += utf8_length(text[stop]);
      }
      end = space_end = stop;
    }
    if (token.lstrip) begin = std::max(begin, done);
    if (begin >= end) continue;  // the previous token has taken this white space
    if (begin > done) visit(text.substr(done, begin - done), nullptr);
    visit(text.substr(begin, end - begin), &token);
    done = end;
  }
  if (done < text.size()) visit(text.substr(done), nullptr);
}

}  // namespace millrace
