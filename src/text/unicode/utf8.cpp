#include "text/unicode/utf8.h"

#include <bit>
#include <cstring>

namespace millrace {
namespace {

// Length of a character by its lead byte, and the range of valid second bytes. Length 0: not a lead byte.
struct Lead {
  size_t length;
  unsigned char second_first, second_last;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};  // less would be overlong
  if (byte == 0xED) return {3, 0x80, 0x9F};  // surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // beyond U+10FFFF
  return {0, 0, 0};
}

}  // namespace

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F)), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  }
}

size_t count_characters(std::string_view text) {
  // Eight bytes at a time: a continuation byte has its highest bit set and the next one clear.
  size_t continuations = 0, at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + at, sizeof bytes);
    continuations += static_cast<size_t>(std::popcount((bytes >> 7) & ~(bytes >> 6) & 0x0101010101010101u));
  }
  for (; at < text.size(); ++at) continuations += (text[at] & 0xC0) == 0x80;
  return text.size() - continuations;
}

Utf8Step step_utf8(std::string_view text, size_t position) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[position]));
  if (lead.length == 0) return {Utf8Step::Broken, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (position + i == text.size()) return {Utf8Step::Unfinished, i};
    const auto byte = static_cast<unsigned char>(text[position + i]);
    const bool good = i == 1 ? byte >= lead.second_first && byte <= lead.second_last : (byte & 0xC0) == 0x80;
    if (!good) return {Utf8Step::Broken, i};
  }
  return {Utf8Step::Valid, lead.length};
}

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = step_utf8(text, i);
    if (step.kind != Utf8Step::Valid) return false;
    i += step.length;
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = step_utf8(text, i);
    repaired += step.kind == Utf8Step::Valid ? text.substr(i, step.length) : kReplacementCharacter;
    i += step.length;
  }
  return repaired;
}

}  // namespace millrace
