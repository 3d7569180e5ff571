#include "text/tokenizer/json_parts.h"

#include <limits>

#include "text/tokenizer/base64.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/unicode/properties.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostSteps = 64;        // limit for a sequence; real tokenizers have a handful
constexpr size_t kLongestContent = 256;  // limit for the replacement of a match, in bytes

[[noreturn]] void unknown_type(const char* part, const std::string& type) {
  fail(ErrorKind::Unsupported, "tokenizer.json: the {} '{}' is not supported", part, type);
}

// Flattens nested sequences into one list.
void flatten(const Json& json, const char* key, std::vector<const Json*>& list) {
  if (json.is_null()) return;
  if (type_name(json) != "Sequence") {
    if (list.size() == kMostSteps) {
      fail(ErrorKind::Unsupported, "tokenizer.json: '{}' has more than {} steps", key, kMostSteps);
    }
    list.push_back(&json);
    return;
  }
  for (const Json& step : array_field(json, key)) flatten(step, key, list);
}

Pattern pattern_field(const Json& json) {
  const Json& pattern = field(json, "pattern");
  if (pattern.is_string()) return Pattern::text(pattern.get<std::string>());
  if (find_field(pattern, "String") != nullptr) return Pattern::text(string_field(pattern, "String"));
  return Pattern::regex(string_field(pattern, "Regex"));
}

std::string content_field(const Json& json, const char* key) {
  std::string content = string_field(json, key);
  if (content.size() > kLongestContent) {
    fail(ErrorKind::Unsupported, "tokenizer.json: '{}' is longer than {} bytes", key, kLongestContent);
  }
  return content;
}

SplitBehavior behavior_field(const Json& json, const char* fallback) {
  const std::string name = string_field(json, "behavior", fallback);
  if (name == "Removed") return SplitBehavior::Removed;
  if (name == "Isolated") return SplitBehavior::Isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
  if (name == "Contiguous") return SplitBehavior::Contiguous;
  unknown_type("split behavior", name);
}

PrependScheme prepend_scheme(const Json& json) {
  const std::string name = string_field(json, "prepend_scheme", "always");
  const bool add_prefix_space = bool_field(json, "add_prefix_space", true);  // older form of the same setting
  if (!add_prefix_space || name == "never") return PrependScheme::Never;
  if (name == "always") return PrependScheme::Always;
  if (name == "first") return PrependScheme::First;
  unknown_type("prepend scheme", name);
}

std::unique_ptr<Normalizer> normalizer_step(const Json& json) {
  const std::string type = type_name(json);
  if (type == "NFC") return make_unicode_form(UnicodeForm::Nfc);
  if (type == "NFD") return make_unicode_form(UnicodeForm::Nfd);
  if (type == "NFKC") return make_unicode_form(UnicodeForm::Nfkc);
  if (type == "NFKD") return make_unicode_form(UnicodeForm::Nfkd);
  if (type == "Lowercase") return make_lowercase();
  if (type == "StripAccents") return make_strip_accents();
  if (type == "Strip") return make_strip(bool_field(json, "strip_left", true), bool_field(json, "strip_right", true));
  if (type == "Replace") return make_replace(pattern_field(json), content_field(json, "content"));
  if (type == "Prepend") return make_prepend(content_field(json, "prepend"));
  if (type == "Nmt") return make_nmt();
  if (type == "ByteLevel") return make_byte_level_normalizer();
  if (type == "Precompiled") return make_charsmap(decode_base64(string_field(json, "precompiled_charsmap")));
  if (type == "BertNormalizer") {
    const bool lowercase = bool_field(json, "lowercase", true);
    return make_bert_normalizer({.clean_text = bool_field(json, "clean_text", true),
                                 .handle_chinese_characters = bool_field(json, "handle_chinese_chars", true),
                                 .strip_accents = bool_field(json, "strip_accents", lowercase),
                                 .lowercase = lowercase});
  }
  unknown_type("normalizer", type);
}

std::unique_ptr<PreTokenizer> pre_tokenizer_step(const Json& json) {
  const std::string type = type_name(json);
  if (type == "Split") {
    return make_split(pattern_field(json), behavior_field(json, "Isolated"), bool_field(json, "invert", false));
  }
  if (type == "ByteLevel") {
    return make_byte_level(bool_field(json, "add_prefix_space", true), bool_field(json, "use_regex", true));
  }
  if (type == "Metaspace") {
    return make_metaspace(character_field(json, "replacement"), prepend_scheme(json), bool_field(json, "split", true));
  }
  if (type == "Digits") {
    const bool individual = bool_field(json, "individual_digits", false);
    return make_character_split(is_numeric, individual ? SplitBehavior::Isolated : SplitBehavior::Contiguous);
  }
  if (type == "Punctuation") return make_character_split(is_punctuation, behavior_field(json, "Isolated"));
  if (type == "Whitespace") return make_whitespace_split();
  if (type == "WhitespaceSplit") return make_character_split(is_white_space, SplitBehavior::Removed);
  if (type == "BertPreTokenizer") {
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    steps.push_back(make_character_split(is_white_space, SplitBehavior::Removed));
    steps.push_back(make_character_split(is_punctuation, SplitBehavior::Isolated));
    return make_sequence(std::move(steps));
  }
  if (type == "CharDelimiterSplit") {
    return make_delimiter_split(decode_utf8(character_field(json, "delimiter").data()).code);
  }
  if (type == "UnicodeScripts") return make_script_split();
  if (type == "FixedLength") {
    const int64_t length = integer_field(json, "length", 5);
    if (length < 1) fail(ErrorKind::BadFile, "tokenizer.json: FixedLength has the length {}", length);
    return make_fixed_length_split(static_cast<size_t>(length));
  }
  unknown_type("pre-tokenizer", type);
}

DecodeStep decoder_step(const Json& json) {
  const std::string type = type_name(json);
  const auto count = [&](const char* key) {
    return static_cast<size_t>(std::max<int64_t>(0, integer_field(json, key, 0)));
  };
  if (type == "ByteLevel") return byte_level_decoder();
  if (type == "ByteFallback") return byte_fallback_decoder();
  if (type == "Fuse") return fuse_decoder();
  if (type == "Strip") return strip_decoder(character_field(json, "content"), count("start"), count("stop"));
  if (type == "Replace") return replace_decoder(pattern_field(json), content_field(json, "content"));
  if (type == "Metaspace") {
    return metaspace_decoder(character_field(json, "replacement"), prepend_scheme(json) != PrependScheme::Never);
  }
  if (type == "WordPiece") {
    return wordpiece_decoder(string_field(json, "prefix", "##"), bool_field(json, "cleanup", true));
  }
  if (type == "BPEDecoder") return bpe_decoder(string_field(json, "suffix", "</w>"));
  if (type == "CTC") {
    return ctc_decoder(string_field(json, "pad_token", "<pad>"), string_field(json, "word_delimiter_token", "|"),
                       bool_field(json, "cleanup", true));
  }
  unknown_type("decoder", type);
}

int32_t token_id(const Json& json) {
  const bool good = json.is_number_integer() && json.get<int64_t>() >= 0 &&
                    json.get<int64_t>() <= std::numeric_limits<int32_t>::max();
  if (!good) fail(ErrorKind::BadFile, "tokenizer.json: the post-processor names an id that is none");
  return json.get<int32_t>();
}

int32_t id_of_pair(const Json& json, const char* key) {
  const Json& pair = array_field(json, key);  // ["[CLS]", 101]
  if (pair.size() != 2) fail(ErrorKind::BadFile, "tokenizer.json: '{}' is not a token and its id", key);
  return token_id(pair[1]);
}

std::vector<int32_t> template_frame(const Json& json) {
  const Json& tokens = field(json, "special_tokens");
  std::vector<int32_t> frame;
  for (const Json& piece : array_field(json, "single")) {
    if (const Json* sequence = find_field(piece, "Sequence")) {
      if (string_field(*sequence, "id") != "A") {
        fail(ErrorKind::BadFile, "tokenizer.json: the template for one text asks for a second");
      }
      frame.push_back(TokenizerParts::kText);
      continue;
    }
    const std::string name = string_field(field(piece, "SpecialToken"), "id");
    for (const Json& id : array_field(field(tokens, name.c_str()), "ids")) frame.push_back(token_id(id));
  }
  return frame;
}

std::vector<int32_t> processor_frame(const Json& json) {
  const std::string type = type_name(json);
  if (type == "ByteLevel") return {TokenizerParts::kText};
  if (type == "TemplateProcessing") return template_frame(json);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return {id_of_pair(json, "cls"), TokenizerParts::kText, id_of_pair(json, "sep")};
  }
  unknown_type("post-processor", type);
}

TokenizerParts::PairFrame template_pair(const Json& json) {
  TokenizerParts::PairFrame frame;
  frame.ids.clear();
  const Json& tokens = field(json, "special_tokens");
  std::optional<size_t> second_type;
  for (const Json& piece : array_field(json, "pair")) {
    const Json* sequence = find_field(piece, "Sequence");
    const Json& part = sequence != nullptr ? *sequence : field(piece, "SpecialToken");
    if (integer_field(part, "type_id", 0) != 0 && !second_type) second_type = frame.ids.size();
    const std::string name = string_field(part, "id");
    if (sequence != nullptr) {
      frame.ids.push_back(name == "A" ? TokenizerParts::kText : TokenizerParts::PairFrame::kSecondText);
    } else {
      for (const Json& id : array_field(field(tokens, name.c_str()), "ids")) frame.ids.push_back(token_id(id));
    }
  }
  frame.second_type = second_type.value_or(frame.ids.size());
  return frame;
}

}  // namespace

// The last processor that knows pairs; without one the texts follow each other.
TokenizerParts::PairFrame pair_from_json(const Json& json) {
  constexpr int32_t kFirst = TokenizerParts::kText, kSecond = TokenizerParts::PairFrame::kSecondText;
  std::vector<const Json*> list;
  flatten(json, "processors", list);
  TokenizerParts::PairFrame frame;
  for (const Json* step : list) {
    const std::string type = type_name(*step);
    if (type == "TemplateProcessing" && find_field(*step, "pair") != nullptr) frame = template_pair(*step);
    if (type != "BertProcessing" && type != "RobertaProcessing") continue;
    const int32_t cls = id_of_pair(*step, "cls"), sep = id_of_pair(*step, "sep");
    if (type == "BertProcessing") frame = {{cls, kFirst, sep, kSecond, sep}, 3};
    if (type == "RobertaProcessing") frame = {{cls, kFirst, sep, sep, kSecond, sep}, 6};
  }
  return frame;
}

std::unique_ptr<Normalizer> normalizer_from_json(const Json& json) {
  std::vector<const Json*> list;
  flatten(json, "normalizers", list);
  if (list.empty()) return nullptr;
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (const Json* step : list) steps.push_back(normalizer_step(*step));
  return make_normalizer_sequence(std::move(steps));
}

std::unique_ptr<PreTokenizer> pre_tokenizer_from_json(const Json& json) {
  std::vector<const Json*> list;
  flatten(json, "pretokenizers", list);
  if (list.empty()) return nullptr;
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (const Json* step : list) steps.push_back(pre_tokenizer_step(*step));
  return steps.size() == 1 ? std::move(steps[0]) : make_sequence(std::move(steps));
}

std::vector<DecodeStep> decoders_from_json(const Json& json) {
  std::vector<const Json*> list;
  flatten(json, "decoders", list);
  std::vector<DecodeStep> steps;
  for (const Json* step : list) steps.push_back(decoder_step(*step));
  if (json.is_null()) steps.push_back(space_between_tokens());
  return steps;
}

std::vector<int32_t> frame_from_json(const Json& json) {
  constexpr size_t kMostTokens = 1000;
  std::vector<const Json*> list;
  flatten(json, "processors", list);
  std::vector<int32_t> frame = {TokenizerParts::kText};
  for (const Json* step : list) {
    std::vector<int32_t> around;
    for (const int32_t id : processor_frame(*step)) {
      if (id == TokenizerParts::kText) {
        around.insert(around.end(), frame.begin(), frame.end());
      } else {
        around.push_back(id);
      }
      if (around.size() > kMostTokens) {
        fail(ErrorKind::BadFile, "tokenizer.json: its post-processors add more than {} tokens", kMostTokens);
      }
    }
    frame = std::move(around);
  }
  return frame;
}

}  // namespace millrace
