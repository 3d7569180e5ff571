#include "text/tokenizer/charsmap.h"

#include <utf8proc.h>

#include "base/error.h"
#include "text/tokenizer/normalizer.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

uint32_t little_endian(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])); };
  return byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
}

// Bit fields of a unit of the double array, in the layout of darts-clone.
bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

class CharsmapNormalizer : public Normalizer {
 public:
  explicit CharsmapNormalizer(std::string_view precompiled) : map_(precompiled) {}

  void apply(NormalizedText& text) const override {
    std::string result;
    result.reserve(text.text.size());
    for (size_t i = 0; i < text.text.size();) {
      const std::string_view cluster = grapheme(std::string_view(text.text).substr(i));
      append(cluster, result);
      i += cluster.size();
    }
    text.text = std::move(result);
  }

 private:
  static std::string_view grapheme(std::string_view text) {
    Character c = decode_utf8(text.data());
    utf8proc_int32_t state = 0;
    size_t end = c.length;
    while (end < text.size()) {
      const Character next = decode_utf8(text.data() + end);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code),
                                           static_cast<utf8proc_int32_t>(next.code), &state))
        break;
      end += next.length;
      c = next;
    }
    return text.substr(0, end);
  }

  void append(std::string_view cluster, std::string& result) const {
    constexpr size_t kLongestLookedUp = 5;
    if (cluster.size() <= kLongestLookedUp) {
      if (const auto replacement = map_.find(cluster)) {
        result += *replacement;
        return;
      }
    }
    for (size_t i = 0; i < cluster.size();) {
      const std::string_view character = cluster.substr(i, utf8_length(cluster[i]));
      result += map_.find(character).value_or(character);
      i += character.size();
    }
  }

  Charsmap map_;
};

}  // namespace

Charsmap::Charsmap(std::string_view precompiled) {
  const auto broken = [] { fail(ErrorKind::BadFile, "the tokenizer's precompiled charsmap is broken"); };
  if (precompiled.size() < 4) broken();
  const uint32_t size = little_endian(precompiled, 0);
  if (size % 4 != 0 || size > precompiled.size() - 4) broken();
  for (size_t at = 4; at < 4 + size; at += 4) units_.push_back(little_endian(precompiled, at));
  replacements_ = precompiled.substr(4 + size);
  if (!is_valid_utf8(replacements_)) broken();
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const {
  constexpr size_t kLongestReplacement = 1024;
  if (units_.empty()) return std::nullopt;
  size_t node = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) return std::nullopt;
    const bool leaf = has_leaf(units_[node]);
    node ^= offset_of(units_[node]);
    if (!leaf) continue;
    if (node >= units_.size()) return std::nullopt;
    const size_t begin = value_of(units_[node]);
    if (begin > replacements_.size() || (begin < replacements_.size() && (replacements_[begin] & 0xC0) == 0x80)) {
      fail(ErrorKind::BadFile, "the tokenizer's precompiled charsmap is broken");
    }
    const size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
    if (end - begin > kLongestReplacement) fail(ErrorKind::BadFile, "the tokenizer's precompiled charsmap is broken");
    return std::string_view(replacements_).substr(begin, end - begin);
  }
  return std::nullopt;
}

std::unique_ptr<Normalizer> make_charsmap(std::string_view precompiled) {
  return std::make_unique<CharsmapNormalizer>(precompiled);
}

}  // namespace millrace
