#include "text/tokenizer/normalizer.h"

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

constexpr char32_t kRemoved = 0xFFFFFFFF;

// Maps each character; `map` returns kRemoved to delete it.
template <class Map>
void map_characters(NormalizedText& text, Map map) {
  std::string result;
  result.reserve(text.text.size());
  for (size_t i = 0; i < text.text.size();) {
    const Character c = decode_utf8(text.text.data() + i);
    const char32_t mapped = map(c.code);
    if (mapped != kRemoved) {
      append_utf8(result, mapped);
    } else if (result.empty()) {
      text.front_kept = false;
    }
    i += c.length;
  }
  text.text = std::move(result);
}

class UnicodeFormNormalizer : public Normalizer {
 public:
  explicit UnicodeFormNormalizer(UnicodeForm form) : form_(form) {}
  void apply(NormalizedText& text) const override { text.text = normalized(text.text, form_); }

 private:
  UnicodeForm form_;
};

class Lowercase : public Normalizer {
 public:
  void apply(NormalizedText& text) const override { text.text = lowercased(text.text); }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  void apply(NormalizedText& text) const override {
    const std::string_view view = text.text;
    const auto space_at = [&](size_t i) { return is_white_space(decode_utf8(view.data() + i).code); };
    size_t begin = 0, end = view.size();
    while (right_ && end > 0 && space_at(previous_utf8(view, end))) end = previous_utf8(view, end);
    while (left_ && begin < end && space_at(begin)) begin += utf8_length(view[begin]);
    if (begin > 0) text.front_kept = false;
    text.text = text.text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class StripAccents : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    map_characters(text, [](char32_t c) { return is_combining_mark(c) ? kRemoved : c; });
  }
};

class Replace : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(NormalizedText& text) const override {
    std::string result;
    result.reserve(text.text.size());
    size_t last = 0;
    pattern_.find_all(text.text, [&](size_t begin, size_t end) {
      result.append(text.text, last, begin - last);
      result += content_;
      last = end;
    });
    result.append(text.text, last);
    text.text = std::move(result);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalizedText& text) const override {
    if (!text.text.empty()) text.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

// SentencePiece's cleaning for machine translation.
class Nmt : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    map_characters(text, [](char32_t c) -> char32_t {
      if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) {
        return kRemoved;
      }
      const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
                         c == 0xFFFD;
      return space ? ' ' : c;
    });
  }
};

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const BertNormalizerOptions& options) : options_(options) {}

  void apply(NormalizedText& text) const override {
    if (options_.clean_text) clean(text);
    if (options_.handle_chinese_characters) separate_chinese(text);
    if (options_.strip_accents) {
      text.text = normalized(text.text, UnicodeForm::Nfd);
      map_characters(text, [](char32_t c) { return is_nonspacing_mark(c) ? kRemoved : c; });
    }
    if (options_.lowercase) text.text = lowercased(text.text);
  }

 private:
  static void clean(NormalizedText& text) {
    map_characters(text, [](char32_t c) -> char32_t {
      if (c == 0 || c == 0xFFFD || is_control(c)) return kRemoved;
      return is_white_space(c) ? ' ' : c;
    });
  }

  static void separate_chinese(NormalizedText& text) {
    std::string result;
    for (size_t i = 0; i < text.text.size();) {
      const Character c = decode_utf8(text.text.data() + i);
      const bool chinese = is_chinese(c.code);
      if (chinese) result += ' ';
      result.append(text.text, i, c.length);
      if (chinese) result += ' ';
      i += c.length;
    }
    text.text = std::move(result);
  }

  BertNormalizerOptions options_;
};

class ByteLevelNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    std::string result;
    append_byte_level(result, text.text);
    text.text = std::move(result);
  }
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}

  void apply(NormalizedText& text) const override {
    const size_t most = 4096 + 64 * text.text.size();
    for (const auto& step : steps_) {
      step->apply(text);
      if (text.text.size() > most) fail(ErrorKind::BadFile, "the tokenizer's normalizer makes the text grow too much");
    }
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

}  // namespace

std::unique_ptr<Normalizer> make_unicode_form(UnicodeForm form) {
  return std::make_unique<UnicodeFormNormalizer>(form);
}
std::unique_ptr<Normalizer> make_lowercase() { return std::make_unique<Lowercase>(); }
std::unique_ptr<Normalizer> make_strip(bool left, bool right) { return std::make_unique<Strip>(left, right); }
std::unique_ptr<Normalizer> make_strip_accents() { return std::make_unique<StripAccents>(); }
std::unique_ptr<Normalizer> make_replace(Pattern pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
std::unique_ptr<Normalizer> make_prepend(std::string prefix) { return std::make_unique<Prepend>(std::move(prefix)); }
std::unique_ptr<Normalizer> make_nmt() { return std::make_unique<Nmt>(); }
std::unique_ptr<Normalizer> make_bert_normalizer(const BertNormalizerOptions& options) {
  return std::make_unique<BertNormalizer>(options);
}
std::unique_ptr<Normalizer> make_byte_level_normalizer() { return std::make_unique<ByteLevelNormalizer>(); }
std::unique_ptr<Normalizer> make_normalizer_sequence(std::vector<std::unique_ptr<Normalizer>> steps) {
  return std::make_unique<NormalizerSequence>(std::move(steps));
}

}  // namespace millrace
