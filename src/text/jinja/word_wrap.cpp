#include "text/jinja/word_wrap.h"

#include <algorithm>

#include "text/jinja/budget.h"
#include "text/jinja/template_error.h"
#include "text/jinja/unicode.h"

namespace millrace::jinja {
namespace {

using CodePoints = std::u32string;
using View = std::u32string_view;

CodePoints decode(std::string_view text) {
  CodePoints out;
  for (size_t at = 0; at < text.size();) out += next_code_point(text, at);
  return out;
}

std::string encode(View text) {
  std::string out;
  for (char32_t c : text) append_code_point(out, c);
  return out;
}

bool is_blank(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_word(char32_t c) { return c == '_' || is_alnum(c); }
bool is_letter(char32_t c) { return is_word(c) && !is_decimal(c); }
bool is_word_or_punctuation(char32_t c) { return is_word(c) || View(U"!\"'&.,?").find(c) != View::npos; }

bool is_empty(View chunk) { return std::all_of(chunk.begin(), chunk.end(), is_space); }

// Cuts a text into the pieces between which a line may end: words, spaces, dashes, and halves of hyphenated words.
class Chunker {
 public:
  Chunker(View text, bool on_hyphens) : text_(text), on_hyphens_(on_hyphens) {}

  std::vector<View> run() const {
    std::vector<View> chunks;
    for (size_t at = 0; at < text_.size();) {
      const size_t end = chunk_end(at);
      chunks.push_back(text_.substr(at, end - at));
      at = end;
    }
    return chunks;
  }

 private:
  bool at(size_t i, bool (*is)(char32_t)) const { return i < text_.size() && is(text_[i]); }
  bool dash_at(size_t i) const { return i < text_.size() && text_[i] == '-'; }

  size_t chunk_end(size_t start) const {
    size_t end = start + 1;
    if (is_blank(text_[start])) {
      while (at(end, is_blank)) ++end;
      return end;
    }
    if (on_hyphens_ && start > 0 && is_word_or_punctuation(text_[start - 1])) {
      if (const size_t dashes = em_dash_end(start)) return dashes;
    }
    for (;; ++end) {
      if (on_hyphens_ && splits_after_hyphen(end)) return end + 1;
      if (end == text_.size() || is_blank(text_[end])) return end;
      if (on_hyphens_ && is_word_or_punctuation(text_[end - 1]) && em_dash_end(end)) return end;
    }
  }

  // Behind two or more dashes that a word follows; 0 when there are none here.
  size_t em_dash_end(size_t start) const {
    size_t end = start;
    while (dash_at(end)) ++end;
    return end - start >= 2 && at(end, is_word) ? end : 0;
  }

  // Whether the hyphen here stands between letters, as in "well-known" or "e-mail-ed".
  bool splits_after_hyphen(size_t i) const {
    if (!dash_at(i)) return false;
    const bool two_letters = i >= 2 && is_letter(text_[i - 1]) && is_letter(text_[i - 2]);
    const bool letter_before =
        i >= 3 && is_word_or_punctuation(text_[i - 1]) && dash_at(i - 2) && is_letter(text_[i - 3]);
    if (!two_letters && !letter_before) return false;
    return at(i + 1, is_letter) && (at(i + 2, is_letter) || (dash_at(i + 2) && at(i + 3, is_letter)));
  }

  const View text_;
  const bool on_hyphens_;
};

class Wrapper {
 public:
  Wrapper(std::vector<View> chunks, const WrapOptions& options)
      : chunks_(std::move(chunks)),
        options_(options),
        width_(static_cast<size_t>(std::min<Integer>(options.width, Integer(1) << 40))) {
    std::reverse(chunks_.begin(), chunks_.end());
  }

  std::vector<std::string> run() {
    std::vector<std::string> lines;
    while (!chunks_.empty()) {
      if (!lines.empty() && is_empty(chunks_.back())) chunks_.pop_back();
      const CodePoints line = next_line();
      if (!line.empty()) lines.push_back(encode(line));
    }
    return lines;
  }

 private:
  CodePoints next_line() {
    std::vector<View> line;
    size_t used = 0;
    while (!chunks_.empty() && used + chunks_.back().size() <= width_) {
      used += chunks_.back().size();
      line.push_back(chunks_.back());
      chunks_.pop_back();
    }
    if (!chunks_.empty() && chunks_.back().size() > width_) split_long_word(line, width_ - used);
    if (!line.empty() && is_empty(line.back())) line.pop_back();
    CodePoints text;
    for (const View chunk : line) text += chunk;
    return text;
  }

  void split_long_word(std::vector<View>& line, size_t room) {
    Budget::spend();
    View& word = chunks_.back();
    if (!options_.break_long_words) {
      if (!line.empty()) return;
      line.push_back(word);
      chunks_.pop_back();
      return;
    }
    size_t end = room;
    if (options_.break_on_hyphens && word.size() > room) {
      const size_t hyphen = room > 0 ? word.rfind('-', room - 1) : View::npos;
      const bool splits =
          hyphen != View::npos && hyphen > 0 &&
          std::any_of(word.begin(), word.begin() + static_cast<ptrdiff_t>(hyphen), [](char32_t c) { return c != '-'; });
      if (splits) end = hyphen + 1;
    }
    line.push_back(word.substr(0, end));
    word = word.substr(end);
  }

  std::vector<View> chunks_;
  const WrapOptions& options_;
  const size_t width_;
};

}  // namespace

std::vector<std::string> wrap_line(std::string_view text, const WrapOptions& options) {
  if (options.width <= 0) fail_template("invalid width (must be > 0)");
  Budget::spend(static_cast<int64_t>(text.size()));
  const CodePoints code_points = decode(text);
  return Wrapper(Chunker(code_points, options.break_on_hyphens).run(), options).run();
}

}  // namespace millrace::jinja
