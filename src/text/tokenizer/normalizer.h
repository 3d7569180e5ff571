// Rewrites text before pre-tokenization: Unicode normalization, case, replacements.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer/pattern.h"
#include "text/unicode/normal_form.h"

namespace millrace {

struct NormalizedText {
  std::string text;
  bool front_kept = true;  // the beginning was not stripped
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text) const = 0;
};

struct BertNormalizerOptions {
  bool clean_text, handle_chinese_characters, strip_accents, lowercase;
};

std::unique_ptr<Normalizer> make_unicode_form(UnicodeForm form);
std::unique_ptr<Normalizer> make_lowercase();
std::unique_ptr<Normalizer> make_strip(bool left, bool right);
std::unique_ptr<Normalizer> make_strip_accents();
std::unique_ptr<Normalizer> make_replace(Pattern pattern, std::string content);
std::unique_ptr<Normalizer> make_prepend(std::string prefix);
std::unique_ptr<Normalizer> make_nmt();
std::unique_ptr<Normalizer> make_bert_normalizer(const BertNormalizerOptions& options);
std::unique_ptr<Normalizer> make_byte_level_normalizer();
std::unique_ptr<Normalizer> make_charsmap(std::string_view precompiled);  // see charsmap.h
std::unique_ptr<Normalizer> make_normalizer_sequence(std::vector<std::unique_ptr<Normalizer>> steps);

}  // namespace millrace
