#include "convert/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "convert/tokenizer_probes.h"
#include "text/tokenizer/base64.h"
#include "text/tokenizer/gguf_pre_tokenizers.h"
#include "text/tokenizer/json_reader.h"

namespace millrace {
namespace {

enum TokenType : int32_t { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

// llama.cpp's converter hides tokens of such shapes, whatever tokenizer.json says.
bool looks_special(std::string_view token) {
  for (const std::string_view known : {"<pad>", "<mask>", "<2mass>", "[@BOS@]"}) {
    if (token == known) return true;
  }
  return (token.starts_with("<|") && token.ends_with("|>")) || (token.starts_with("<｜") && token.ends_with("｜>")) ||
         token.starts_with("<unused");
}

constexpr std::string_view kContinues = "##";
constexpr int64_t kLongestWord = 100;  // characters; a longer one is unknown

bool is_byte(std::string_view token) { return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">"); }

class VocabularyBuilder {
 public:
  VocabularyBuilder(const std::string& json, const std::string& config, const std::string& architecture)
      : reference_(tokenizer_from_json(json, config)), json_(read_tokenizer_json(json)) {
    out_.architecture = architecture;
  }

  GgufVocabulary build(int64_t rows) {
    if (reference_->vocab_size() > rows) {
      fail(ErrorKind::Unsupported, "tokenizer.json has {} tokens, but the embedding has {} rows",
           reference_->vocab_size(), rows);
    }
    read_tokens(rows);
    read_ids();
    const nlohmann::json& model = field(json_.tree, "model");
    const std::string type = string_field(model, "type", json_.has_merges ? "BPE" : "Unigram");
    if (type == "BPE" && bool_field(model, "byte_fallback", false)) {
      build_sentencepiece();
    } else if (type == "BPE") {
      build_byte_level(bool_field(model, "ignore_merges", false));
    } else if (type == "Unigram") {
      build_unigram(integer_field(model, "unk_id", -1));
    } else if (type == "WordPiece" && string_field(model, "continuing_subword_prefix", "##") == kContinues) {
      if (integer_field(model, "max_input_chars_per_word", kLongestWord) != kLongestWord)
        fail(ErrorKind::Unsupported, "tokenizer.json: a GGUF file cannot hold 'max_input_chars_per_word'");
      build_wordpiece(string_field(model, "unk_token", "[UNK]"));
    } else {
      fail(ErrorKind::Unsupported, "a GGUF file cannot hold a tokenizer of the kind '{}'", type);
    }
    match_pairs();
    return std::move(out_);
  }

 private:
  // Cross-encoders: RoBERTa's have two separators between the texts, for which there is a key.
  void match_pairs() {
    if (out_.architecture.find("bert") == std::string::npos) return;
    const auto same = [&] {
      const EncodedPair made = tokenizer_from_gguf(out_)->encode_pair("a", "b"),
                        wanted = reference_->encode_pair("a", "b");
      return made.ids == wanted.ids && made.second == wanted.second;
    };
    if (same()) return;
    out_.separator = out_.eos;
    out_.add_sep = true;
    if (!same()) log().warn("tokenizer.json: the GGUF file joins pairs of texts in another way");
  }

  void read_tokens(int64_t rows) {
    for (int32_t id = 0; id < rows; ++id) {
      const std::string_view text = reference_->token_text(id);
      out_.tokens.emplace_back(text.empty() ? fmt::format("[PAD{}]", id) : std::string(text));
      out_.types.push_back(text.empty() ? Unused : Normal);
    }
    if (find_field(json_.tree, "added_tokens") == nullptr) return;
    for (const auto& entry : array_field(json_.tree, "added_tokens")) {
      const std::string content = string_field(entry, "content");
      const auto id = reference_->id_of(content);
      if (!id) continue;
      const bool special = bool_field(entry, "special", false) || looks_special(content);
      out_.types[static_cast<size_t>(*id)] = special ? Control : UserDefined;
    }
  }

  void read_ids() {
    out_.bos = reference_->bos();
    out_.eos = reference_->eos();
    out_.unknown = reference_->unknown();
    out_.padding = reference_->padding();
    const auto empty = reference_->encode("");
    out_.add_bos = out_.bos && !empty.empty() && empty.front() == *out_.bos;
    if (!out_.bos && empty.size() == 2) {  // [CLS] and [SEP]
      out_.bos = empty.front();
      out_.eos = empty.back();
      out_.add_bos = true;
    }
    out_.add_eos = out_.eos && !empty.empty() && empty.back() == *out_.eos && (empty.size() > 1 || !*out_.add_bos);
  }

  void read_merges() {
    std::string_view rest = json_.merge_bytes;
    for (const auto& [left, right] : json_.merges) {
      const std::string_view first = rest.substr(0, left), second = rest.substr(left, right);
      if (first.find(' ') != std::string_view::npos || second.find(' ') != std::string_view::npos)
        fail(ErrorKind::Unsupported, "tokenizer.json has a merge with a space, which a GGUF file cannot hold");
      out_.merges.push_back(fmt::format("{} {}", first, second));
      rest.remove_prefix(left + right);
    }
  }

  bool agrees() {
    try {
      const auto made = tokenizer_from_gguf(out_);
      for (const std::string_view text : tokenizer_probes()) {
        if (made->encode(text) != reference_->encode(text)) return false;
      }
      return true;
    } catch (const Error&) {  // a kind of tokenizer that these tokens cannot have
      return false;
    }
  }

  [[noreturn]] static void fail_unknown(const char* what) {
    fail(ErrorKind::Unsupported, "tokenizer.json: no {} of GGUF gives the same tokens", what);
  }

  void build_byte_level(bool ignore_merges) {
    out_.model = "gpt2";
    read_merges();
    std::vector<GgufPreTokenizerName> names = gguf_pre_tokenizer_names();
    std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) {
      return (a.ignore_merges == ignore_merges) > (b.ignore_merges == ignore_merges);
    });
    for (const auto& candidate : names) {
      out_.pre = candidate.name;
      if (agrees()) return;
    }
    fail_unknown("pre-tokenizer");
  }

  // GGUF files of this kind have scores instead of merges. The score of a token orders it by its first merge.
  void build_sentencepiece() {
    if (out_.architecture == "gemma4") {
      out_.model = "gemma4";
      read_merges();
      if (agrees()) return;
      fail_unknown("tokenizer");
    }
    out_.model = "llama";
    out_.pre = "default";
    out_.scores.assign(out_.tokens.size(), 0);
    std::vector<bool> merged(out_.tokens.size());
    std::string_view rest = json_.merge_bytes;
    float score = 0;
    for (const auto& [left, right] : json_.merges) {
      const int32_t id = json_.vocabulary->find(rest.substr(0, left + right));
      rest.remove_prefix(left + right);
      if (id < 0 || merged[static_cast<size_t>(id)]) continue;
      merged[static_cast<size_t>(id)] = true;
      out_.scores[static_cast<size_t>(id)] = score--;
    }
    for (size_t id = 0; id < out_.tokens.size(); ++id) {
      if (out_.types[id] == Normal && is_byte(out_.tokens[id])) out_.types[id] = Byte;
      if (out_.types[id] == Normal && !merged[id]) out_.scores[id] = score--;
    }
    if (out_.unknown) out_.types[static_cast<size_t>(*out_.unknown)] = Unknown;
    choose_space_prefix({true, false});
  }

  void build_unigram(int64_t unknown) {
    out_.model = "t5";
    out_.pre = "default";
    out_.scores.assign(out_.tokens.size(), 0);
    for (size_t id = 0; id < std::min(json_.scores.size(), out_.scores.size()); ++id)
      out_.scores[id] = static_cast<float>(json_.scores[id]);
    for (size_t id = 0; id < out_.tokens.size(); ++id) {
      if (out_.types[id] == Normal && is_byte(out_.tokens[id])) out_.types[id] = Byte;
    }
    if (unknown >= 0) {
      out_.unknown = static_cast<int32_t>(unknown);
      out_.types[static_cast<size_t>(unknown)] = Unknown;
    }
    if (const auto* normalizer = find_field(json_.tree, "normalizer")) read_charsmap(*normalizer);
    for (const bool removes : {true, false}) {
      out_.remove_extra_whitespaces = removes;
      for (const bool prefix : {true, false}) {
        out_.add_space_prefix = prefix;
        if (agrees()) return;
      }
    }
    fail_unknown("tokenizer");
  }

  // Words begin with a phantom space, continuations lose their prefix.
  void build_wordpiece(const std::string& unknown) {
    out_.model = "bert";
    out_.pre = "default";
    out_.unknown = reference_->id_of(unknown);
    if (out_.unknown) out_.types[static_cast<size_t>(*out_.unknown)] = Control;
    const auto framed = reference_->encode("");
    if (framed.size() == 2) {
      out_.bos = out_.cls = framed.front();
      out_.eos = out_.separator = framed.back();
    }
    out_.mask = reference_->id_of("[MASK]");
    out_.add_bos.reset();
    out_.add_eos.reset();
    for (size_t id = 0; id < out_.tokens.size(); ++id) {
      if (out_.types[id] != Normal) continue;
      std::string& token = out_.tokens[id];
      token = token.starts_with(kContinues) ? token.substr(kContinues.size()) : "\u2581" + token;
    }
    if (!agrees()) fail_unknown("tokenizer");
  }

  // The normalizer "Precompiled", alone or in a sequence.
  void read_charsmap(const nlohmann::json& normalizer) {
    if (const auto* list = find_field(normalizer, "normalizers"); list != nullptr && list->is_array()) {
      for (const auto& one : *list) read_charsmap(one);
    } else if (normalizer.is_object() && type_name(normalizer) == "Precompiled") {
      out_.precompiled_charsmap = decode_base64(string_field(normalizer, "precompiled_charsmap", ""));
    }
  }

  void choose_space_prefix(std::initializer_list<bool> choices) {
    for (const bool prefix : choices) {
      out_.add_space_prefix = prefix;
      if (agrees()) return;
    }
    fail_unknown("tokenizer");
  }

  std::shared_ptr<const Tokenizer> reference_;
  TokenizerJson json_;
  GgufVocabulary out_;
};

}  // namespace

GgufVocabulary gguf_vocabulary(const std::string& json, const std::string& config, const std::string& architecture,
                               int64_t rows) {
  return VocabularyBuilder(json, config, architecture).build(rows);
}

void add_vocabulary(const GgufVocabulary& v, GgufMetadataBuilder& out) {
  out.add_string("tokenizer.ggml.model", v.model);
  if (!v.pre.empty()) out.add_string("tokenizer.ggml.pre", v.pre);
  out.add_string_list("tokenizer.ggml.tokens", v.tokens);
  if (!v.scores.empty()) out.add_f32_list("tokenizer.ggml.scores", v.scores);
  out.add_i32_list("tokenizer.ggml.token_type", v.types);
  if (!v.merges.empty()) out.add_string_list("tokenizer.ggml.merges", v.merges);
  const auto add_id = [&](const char* key, std::optional<int32_t> id) {
    if (id) out.add_u32(fmt::format("tokenizer.ggml.{}_token_id", key), static_cast<uint32_t>(*id));
  };
  add_id("bos", v.bos);
  add_id("eos", v.eos);
  add_id("unknown", v.unknown);
  add_id("padding", v.padding);
  add_id("eot", v.eot);
  add_id("eom", v.eom);
  add_id("seperator", v.separator);  // GGUF's spelling
  add_id("cls", v.cls);
  add_id("mask", v.mask);
  const auto add_flag = [&](const char* key, std::optional<bool> value) {
    if (value) out.add_bool(fmt::format("tokenizer.ggml.{}", key), *value);
  };
  add_flag("add_bos_token", v.add_bos);
  add_flag("add_eos_token", v.add_eos);
  add_flag("add_sep_token", v.add_sep);
  add_flag("add_space_prefix", v.add_space_prefix);
  add_flag("remove_extra_whitespaces", v.remove_extra_whitespaces);
  if (!v.precompiled_charsmap.empty()) out.add_u8_list("tokenizer.ggml.precompiled_charsmap", v.precompiled_charsmap);
}

}  // namespace millrace
