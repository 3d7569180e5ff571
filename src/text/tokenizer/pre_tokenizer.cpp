#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

// A part of a piece: a match of the pattern or the text between matches.
struct Part {
  size_t begin, end;
  bool match;
};

// Joins the parts of one piece according to the behavior. With MergedWith*, a joined part contains at most one match.
void apply_behavior(std::vector<Part>& parts, SplitBehavior behavior) {
  std::vector<Part> joined;
  bool previous_match = false;
  const auto join = [&](const Part& part, bool joins) {
    if (joins && !joined.empty()) {
      joined.back().begin = std::min(joined.back().begin, part.begin);
      joined.back().end = std::max(joined.back().end, part.end);
    } else {
      joined.push_back(part);
    }
    previous_match = part.match;
  };
  switch (behavior) {
    case SplitBehavior::Isolated:
      return;
    case SplitBehavior::Removed:
      std::erase_if(parts, [](const Part& part) { return part.match; });
      return;
    case SplitBehavior::Contiguous:
      for (const Part& part : parts) join(part, part.match == previous_match);
      break;
    case SplitBehavior::MergedWithPrevious:
      for (const Part& part : parts) join(part, part.match && !previous_match);
      break;
    case SplitBehavior::MergedWithNext:
      std::reverse(parts.begin(), parts.end());
      for (const Part& part : parts) join(part, part.match && !previous_match);
      std::reverse(joined.begin(), joined.end());
      break;
  }
  parts = std::move(joined);
}

// Base of pre-tokenizers that find parts and join them.
class PartSplit : public PreTokenizer {
 public:
  explicit PartSplit(SplitBehavior behavior) : behavior_(behavior) {}

  void split(PreTokens& pieces) const override {
    std::vector<PreToken> result;
    result.reserve(pieces.list.size());
    std::vector<Part> parts;
    for (const PreToken& piece : pieces.list) {
      parts.clear();
      find_parts(piece.text, parts);
      apply_behavior(parts, behavior_);
      for (const Part& part : parts) {
        if (part.begin == part.end) continue;
        result.push_back({piece.text.substr(part.begin, part.end - part.begin), piece.at_start && part.begin == 0});
      }
    }
    pieces.list = std::move(result);
  }

 protected:
  // Appends parts that cover the text from left to right.
  virtual void find_parts(std::string_view text, std::vector<Part>& parts) const = 0;

 private:
  SplitBehavior behavior_;
};

class PatternSplit : public PartSplit {
 public:
  PatternSplit(Pattern pattern, SplitBehavior behavior, bool invert)
      : PartSplit(behavior), pattern_(std::move(pattern)), invert_(invert) {}

 protected:
  void find_parts(std::string_view text, std::vector<Part>& parts) const override {
    size_t last = 0;
    pattern_.find_all(text, [&](size_t begin, size_t end) {
      if (begin > last) parts.push_back({last, begin, invert_});
      parts.push_back({begin, end, !invert_});
      last = end;
    });
    if (last < text.size()) parts.push_back({last, text.size(), invert_});
  }

 private:
  Pattern pattern_;
  bool invert_;
};

class CharacterSplit : public PartSplit {
 public:
  CharacterSplit(bool (*matches)(char32_t), SplitBehavior behavior) : PartSplit(behavior), matches_(matches) {}

 protected:
  void find_parts(std::string_view text, std::vector<Part>& parts) const override {
    size_t last = 0;
    for (size_t i = 0; i < text.size();) {
      const Character c = decode_utf8(text.data() + i);
      if (matches_(c.code)) {
        if (i > last) parts.push_back({last, i, false});
        last = i + c.length;
        parts.push_back({i, last, true});
      }
      i += c.length;
    }
    if (last < text.size()) parts.push_back({last, text.size(), false});
  }

 private:
  bool (*matches_)(char32_t);
};

// Rewrites all pieces into one shared buffer and points the pieces into it.
class Rewriter {
 public:
  explicit Rewriter(PreTokens& pieces) : pieces_(pieces), text_(pieces.owned.emplace_back()) {}

  std::string& text() { return text_; }
  void end_piece(bool at_start) { ends_.push_back({text_.size(), at_start}); }
  void finish() {
    if (text_.size() > pieces_.most_bytes) {
      fail(ErrorKind::BadFile, "the tokenizer's pre-tokenizer makes the text grow too much");
    }
    pieces_.list.clear();
    size_t begin = 0;
    for (const auto& [end, at_start] : ends_) {
      if (end > begin) pieces_.list.push_back({std::string_view(text_).substr(begin, end - begin), at_start});
      begin = end;
    }
  }

 private:
  PreTokens& pieces_;
  std::string& text_;
  std::vector<std::pair<size_t, bool>> ends_;
};

constexpr std::string_view kGpt2Regex = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) words_ = make_split(Pattern::regex(kGpt2Regex), SplitBehavior::Isolated, false);
  }

  void split(PreTokens& pieces) const override {
    if (add_prefix_space_) {
      Rewriter rewriter(pieces);
      for (const PreToken& piece : pieces.list) {
        if (!piece.text.starts_with(' ')) rewriter.text() += ' ';
        rewriter.text() += piece.text;
        rewriter.end_piece(piece.at_start);
      }
      rewriter.finish();
    }
    if (words_) words_->split(pieces);
    Rewriter rewriter(pieces);
    for (const PreToken& piece : pieces.list) {
      append_byte_level(rewriter.text(), piece.text);
      rewriter.end_piece(piece.at_start);
    }
    rewriter.finish();
  }

 private:
  bool add_prefix_space_;
  std::unique_ptr<PreTokenizer> words_;
};

class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme prepend, bool split) : replacement_(replacement), prepend_(prepend) {
    if (split) words_ = make_split(Pattern::text(std::move(replacement)), SplitBehavior::MergedWithNext, false);
  }

  void split(PreTokens& pieces) const override {
    Rewriter rewriter(pieces);
    for (const PreToken& piece : pieces.list) {
      const bool wanted = prepend_ == PrependScheme::Always || (prepend_ == PrependScheme::First && piece.at_start);
      if (wanted && !piece.text.starts_with(' ') && !piece.text.starts_with(replacement_)) {
        rewriter.text() += replacement_;
      }
      for (const char c : piece.text) {
        if (c == ' ') {
          rewriter.text() += replacement_;
        } else {
          rewriter.text().push_back(c);
        }
      }
      rewriter.end_piece(piece.at_start);
    }
    rewriter.finish();
    if (words_) words_->split(pieces);
  }

 private:
  std::string replacement_;
  PrependScheme prepend_;
  std::unique_ptr<PreTokenizer> words_;
};

// Splits where the script changes. Japanese kana count as Han; characters of no script stay with their neighbours.
class ScriptSplit : public PartSplit {
 public:
  ScriptSplit() : PartSplit(SplitBehavior::Isolated) {
    const auto names = script_names();
    const auto index = [&](std::string_view name) {
      return static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin());
    };
    han_ = index("han"), hiragana_ = index("hiragana"), katakana_ = index("katakana");
  }

 protected:
  void find_parts(std::string_view text, std::vector<Part>& parts) const override {
    constexpr int kAny = 0;
    int last_script = -1;
    size_t last = 0;
    bool begun = false;
    for (size_t i = 0; i < text.size();) {
      const Character c = decode_utf8(text.data() + i);
      const int script = script_at(c.code);
      if (script != kAny && last_script != kAny && script != last_script) {
        if (begun) parts.push_back({last, i, false});
        begun = true;
        last = i;
      }
      if (script != kAny) last_script = script;
      i += c.length;
    }
    if (begun) parts.push_back({last, text.size(), false});
  }

 private:
  int script_at(char32_t code) const {
    if (code == ' ') return 0;
    if (code == 0x30FC) return han_;
    const int script = script_of(code);
    return script == hiragana_ || script == katakana_ ? han_ : script;
  }
  int han_, hiragana_, katakana_;
};

class FixedLengthSplit : public PartSplit {
 public:
  explicit FixedLengthSplit(size_t characters) : PartSplit(SplitBehavior::Isolated), characters_(characters) {}

 protected:
  void find_parts(std::string_view text, std::vector<Part>& parts) const override {
    size_t begin = 0, count = 0;
    for (size_t i = 0; i < text.size();) {
      i += utf8_length(text[i]);
      if (++count == characters_ || i == text.size()) parts.push_back({std::exchange(begin, i), i, false}), count = 0;
    }
  }

 private:
  size_t characters_;
};

class DelimiterSplit : public PartSplit {
 public:
  explicit DelimiterSplit(char32_t delimiter) : PartSplit(SplitBehavior::Removed) {
    append_utf8(delimiter_, delimiter);
  }

 protected:
  void find_parts(std::string_view text, std::vector<Part>& parts) const override {
    size_t last = 0;
    for (size_t at = text.find(delimiter_); at != std::string_view::npos; at = text.find(delimiter_, last)) {
      parts.push_back({last, at, false});
      last = at + delimiter_.size();
    }
    parts.push_back({last, text.size(), false});
  }

 private:
  std::string delimiter_;
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}
  void split(PreTokens& pieces) const override {
    for (const auto& step : steps_) step->split(pieces);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_split(Pattern pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<PatternSplit>(std::move(pattern), behavior, invert);
}

std::unique_ptr<PreTokenizer> make_character_split(bool (*matches)(char32_t), SplitBehavior behavior) {
  return std::make_unique<CharacterSplit>(matches, behavior);
}

std::unique_ptr<PreTokenizer> make_delimiter_split(char32_t delimiter) {
  return std::make_unique<DelimiterSplit>(delimiter);
}

std::unique_ptr<PreTokenizer> make_whitespace_split() {
  // \w of Rust's regex. Oniguruma's \w differs in some numbers and the joiners.
  constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200C\u200D)";
  const std::string regex = "[" + std::string(kWord) + "]+|[^" + std::string(kWord) + "\\s]+";
  return make_split(Pattern::regex(regex), SplitBehavior::Removed, true);
}

std::unique_ptr<PreTokenizer> make_byte_level(bool add_prefix_space, bool use_regex) {
  return std::make_unique<ByteLevel>(add_prefix_space, use_regex);
}

std::unique_ptr<PreTokenizer> make_script_split() { return std::make_unique<ScriptSplit>(); }

std::unique_ptr<PreTokenizer> make_fixed_length_split(size_t characters) {
  return std::make_unique<FixedLengthSplit>(characters);
}

std::unique_ptr<PreTokenizer> make_metaspace(std::string replacement, PrependScheme prepend, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), prepend, split);
}

std::unique_ptr<PreTokenizer> make_sequence(std::vector<std::unique_ptr<PreTokenizer>> steps) {
  return std::make_unique<PreTokenizerSequence>(std::move(steps));
}

}  // namespace millrace
