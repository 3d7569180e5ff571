// Builds a tokenizer from the vocabulary of a GGUF file. Values missing in the file get the defaults of llama.cpp.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "text/tokenizer.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/gguf_pre_tokenizers.h"
#include "text/tokenizer/sentencepiece_bpe.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/wordpiece.h"
#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

enum TokenType : int32_t { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

class GgufBuilder {
 public:
  explicit GgufBuilder(GgufVocabulary vocabulary) : gguf_(std::move(vocabulary)) {}

  std::shared_ptr<const Tokenizer> build() {
    if (gguf_.model == "bert") restore_wordpieces();
    read_tokens();
    if (gguf_.model == "bert") {
      build_wordpiece();
    } else if (gguf_.model == "gpt2") {
      build_byte_level();
    } else if (gguf_.model == "gemma4") {
      build_gemma4();
    } else if (gguf_.model == "llama") {
      build_sentencepiece();
    } else if (gguf_.model == "t5") {
      build_unigram();
    } else {
      fail(ErrorKind::Unsupported, "the tokenizer model '{}' (tokenizer.ggml.model) is not supported", gguf_.model);
    }
    parts_.vocabulary = vocabulary_;
    set_special_ids();
    return std::make_shared<const Tokenizer>(std::move(parts_));
  }

 private:
  int32_t size() const { return static_cast<int32_t>(gguf_.tokens.size()); }
  TokenType type(int32_t id) const { return gguf_.types.empty() ? Normal : static_cast<TokenType>(gguf_.types[id]); }

  void read_tokens() {
    const size_t count = gguf_.tokens.size();
    if (count == 0) fail(ErrorKind::BadFile, "the file has no tokens (tokenizer.ggml.tokens)");
    if (!gguf_.types.empty() && gguf_.types.size() != count) {
      fail(ErrorKind::BadFile, "the file has {} tokens but {} token types", count, gguf_.types.size());
    }
    for (size_t id = 0; id < count; ++id) {
      std::string& text = gguf_.tokens[id];
      if (!is_valid_utf8(text)) text = repair_utf8(text);
      if (text.empty()) text = fmt::format("[EMPTY_{}]", id);
      if (const int32_t other = vocabulary_->find(text); other != Vocabulary::kNone) {
        fail(ErrorKind::BadFile, "tokens {} and {} of the file are both '{}'", other, id, text);
      }
      vocabulary_->add(text, static_cast<int64_t>(id));
    }
    for (int32_t id = 0; id < size(); ++id) {
      const TokenType t = type(id);
      if (t == Control || t == UserDefined || t == Unknown) {
        parts_.added.push_back({.content = gguf_.tokens[id], .id = id, .special = t != UserDefined});
      }
    }
  }

  void check_scores() const {
    if (gguf_.scores.size() != gguf_.tokens.size()) {
      fail(ErrorKind::BadFile, "the file has {} tokens but {} scores (tokenizer.ggml.scores)", gguf_.tokens.size(),
           gguf_.scores.size());
    }
    const bool finite =
        std::all_of(gguf_.scores.begin(), gguf_.scores.end(), [](float score) { return std::isfinite(score); });
    if (!finite) fail(ErrorKind::BadFile, "the file has token scores that are not numbers");
  }

  PairMap read_merges() const {
    if (gguf_.merges.empty()) fail(ErrorKind::BadFile, "the file has no merges (tokenizer.ggml.merges)");
    PairMap merges(gguf_.merges.size());
    size_t useless = 0;
    std::string joined;
    for (size_t rank = 0; rank < gguf_.merges.size(); ++rank) {
      const std::string_view merge = gguf_.merges[rank];
      const size_t space = merge.find(' ', 1);
      const std::string_view left = merge.substr(0, space),
                             right = space == std::string_view::npos ? std::string_view() : merge.substr(space + 1);
      joined.assign(left);
      joined += right;
      const int32_t left_id = vocabulary_->find(left), right_id = vocabulary_->find(right),
                    id = vocabulary_->find(joined);
      if (left_id == Vocabulary::kNone || right_id == Vocabulary::kNone || id == Vocabulary::kNone) {
        ++useless;
      } else if (merges.find(left_id, right_id) == nullptr) {
        merges.insert(left_id, right_id, {static_cast<uint32_t>(rank), id});
      }
    }
    if (useless > 0) {
      log().warn("{} of the file's {} merges use tokens that it does not have; they are left out", useless,
                 gguf_.merges.size());
    }
    return merges;
  }

  void build_byte_level() {
    GgufPreTokenizer pre = gguf_pre_tokenizer(gguf_.pre);
    if (gguf_.pre.empty()) {
      log().warn("the file names no pre-tokenizer; text may be cut into other tokens than the model was trained on");
    }
    if (pre.nfc) parts_.normalizer = make_unicode_form(UnicodeForm::Nfc);
    parts_.pre_tokenizer = std::move(pre.pre_tokenizer);
    parts_.model = std::make_unique<Bpe>(vocabulary_, read_merges(), BpeOptions{.ignore_merges = pre.ignore_merges});
    parts_.decoders = {byte_level_decoder()};
    add_bos_ = pre.add_bos;
  }

  // The alphabet and byte fallback of SentencePiece, combined with merges.
  void build_gemma4() {
    std::vector<std::unique_ptr<Normalizer>> steps;
    steps.push_back(make_replace(Pattern::text(" "), std::string(kMetaspace)));
    parts_.normalizer = make_normalizer_sequence(std::move(steps));
    const std::string unknown = gguf_.unknown && *gguf_.unknown < size() ? gguf_.tokens[*gguf_.unknown] : "";
    parts_.model = std::make_unique<Bpe>(
        vocabulary_, read_merges(), BpeOptions{.unknown_token = unknown, .fuse_unknown = true, .byte_fallback = true});
    add_sentencepiece_decoders(false);
    gguf_.add_bos = true;  // files with add_bos = false are wrong
  }

  void build_sentencepiece() {
    check_scores();
    default_ids(1, 2, 0);
    const bool space_prefix = gguf_.add_space_prefix.value_or(true);
    std::vector<std::unique_ptr<Normalizer>> steps;
    if (space_prefix) steps.push_back(make_prepend(std::string(kMetaspace)));
    steps.push_back(make_replace(Pattern::text(" "), std::string(kMetaspace)));
    parts_.normalizer = make_normalizer_sequence(std::move(steps));
    std::vector<bool> mergeable(gguf_.tokens.size());
    for (int32_t id = 0; id < size(); ++id) {
      mergeable[id] = type(id) != Control && type(id) != Unknown && type(id) != Byte;
    }
    parts_.model = std::make_unique<SentencePieceBpe>(vocabulary_, gguf_.scores, std::move(mergeable),
                                                      gguf_.unknown.value_or(Vocabulary::kNone));
    add_sentencepiece_decoders(space_prefix);
    add_bos_ = true;
    // Special tokens of this family strip the white space behind them. The files do not state it.
    for (AddedToken& token : parts_.added) {
      const bool plain = token.content == "<unk>" || token.content == "<s>" || token.content == "<|endoftext|>";
      token.rstrip = gguf_.architecture == "phi3" && !plain;
    }
  }

  // BERT's files mark the beginning of a word instead of its continuation: "▁sky" and "s" for "sky" and "##s".
  void restore_wordpieces() {
    if (!gguf_.types.empty() && gguf_.types.size() != gguf_.tokens.size()) return;  // read_tokens() refuses it
    is_cased_ = false;
    for (int32_t id = 0; id < size(); ++id) {
      std::string& text = gguf_.tokens[static_cast<size_t>(id)];
      if (type(id) == Control) continue;
      if (text.starts_with(kMetaspace)) {
        text.erase(0, kMetaspace.size());
        is_cased_ |=
            text.size() > 1 && std::all_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
      } else {
        text.insert(0, "##");
      }
    }
  }

  // The files do not say whether the model knows case; a vocabulary with words in capitals does.
  void build_wordpiece() {
    default_ids(gguf_.cls ? gguf_.cls : 101, gguf_.separator ? gguf_.separator : 102, 100);
    const auto name = [&](std::optional<int32_t> id) {
      return id && *id >= 0 && *id < size() ? gguf_.tokens[static_cast<size_t>(*id)] : "[UNK]";
    };
    parts_.normalizer = make_bert_normalizer(
        {.clean_text = true, .handle_chinese_characters = true, .strip_accents = !is_cased_, .lowercase = !is_cased_});
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    steps.push_back(make_character_split(is_white_space, SplitBehavior::Removed));
    steps.push_back(make_character_split(is_punctuation, SplitBehavior::Isolated));
    parts_.pre_tokenizer = make_sequence(std::move(steps));
    constexpr size_t kLongestWord = 100;
    parts_.model = std::make_unique<WordPiece>(vocabulary_, name(gguf_.unknown), "##", kLongestWord);
    parts_.decoders = {wordpiece_decoder("##", true)};
    add_bos_ = add_eos_ = true;
  }

  void build_unigram() {
    check_scores();
    default_ids(std::nullopt, 1, 2);
    if (!gguf_.precompiled_charsmap.empty()) parts_.normalizer = make_charsmap(gguf_.precompiled_charsmap);
    const bool space_prefix = gguf_.add_space_prefix.value_or(false);
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    if (gguf_.remove_extra_whitespaces.value_or(false)) {
      steps.push_back(make_split(Pattern::text(" "), SplitBehavior::Removed, false));
    }
    steps.push_back(
        make_metaspace(std::string(kMetaspace), space_prefix ? PrependScheme::Always : PrependScheme::Never, true));
    parts_.pre_tokenizer = make_sequence(std::move(steps));
    std::vector<bool> usable(gguf_.tokens.size());
    bool bytes = false;
    for (int32_t id = 0; id < size(); ++id) {
      usable[id] = type(id) != Control && type(id) != Unknown && type(id) != Byte;
      bytes |= type(id) == Byte;
    }
    std::vector<double> scores(gguf_.scores.begin(), gguf_.scores.end());
    parts_.model = std::make_unique<Unigram>(vocabulary_, std::move(scores), usable,
                                             gguf_.unknown.value_or(Vocabulary::kNone), bytes);
    parts_.decoders = {metaspace_decoder(std::string(kMetaspace), space_prefix)};
    add_eos_ = true;
  }

  void add_sentencepiece_decoders(bool space_prefix) {
    parts_.decoders = {replace_decoder(Pattern::text(std::string(kMetaspace)), " "), byte_fallback_decoder(),
                       fuse_decoder()};
    if (space_prefix) parts_.decoders.push_back(strip_decoder(" ", 1, 0));
  }

  // For files of this kind that do not name them.
  void default_ids(std::optional<int32_t> bos, std::optional<int32_t> eos, std::optional<int32_t> unknown) {
    const auto fill = [&](std::optional<int32_t>& id, std::optional<int32_t> fallback) {
      if (!id && fallback && *fallback < size()) id = fallback;
    };
    fill(gguf_.bos, bos);
    fill(gguf_.eos, eos);
    fill(gguf_.unknown, unknown);
  }

  std::optional<int32_t> checked(std::optional<int32_t> id, const char* name) const {
    if (id && (*id < 0 || *id >= size())) {
      fail(ErrorKind::BadFile, "the file's {} is token {}, but it has only {}", name, *id, size());
    }
    return id;
  }

  void set_special_ids() {
    parts_.bos = checked(gguf_.bos, "bos_token_id");
    parts_.eos = checked(gguf_.eos, "eos_token_id");
    parts_.unknown = checked(gguf_.unknown, "unknown_token_id");
    // Some fine-tuned models name a padding token outside of the vocabulary. Ignore it: the engine never pads.
    if (gguf_.padding && *gguf_.padding >= 0 && *gguf_.padding < size()) parts_.padding = gguf_.padding;
    const bool add_bos = gguf_.add_bos.value_or(add_bos_ && parts_.bos),
               add_eos = gguf_.add_eos.value_or(add_eos_ && parts_.eos);
    if (add_bos && !parts_.bos) {
      fail(ErrorKind::BadFile, "the file wants a BOS token added (add_bos_token) but names none");
    }
    if (add_eos && !parts_.eos) {
      fail(ErrorKind::BadFile, "the file wants an EOS token added (add_eos_token) but names none");
    }
    parts_.frame.clear();
    if (add_bos) parts_.frame.push_back(*parts_.bos);
    parts_.frame.push_back(TokenizerParts::kText);
    if (add_eos) parts_.frame.push_back(*parts_.eos);
    set_pair(add_bos, add_eos);
    set_ends();
  }

  // [CLS] A [SEP] B [SEP] of BERT, where B has token type 1; <s> A </s> </s> B </s> of RoBERTa.
  void set_pair(bool add_bos, bool add_eos) {
    auto& ids = parts_.pair.ids;
    ids.clear();
    if (add_bos) ids.push_back(*parts_.bos);
    ids.push_back(TokenizerParts::kText);
    if (add_eos) ids.push_back(*parts_.eos);
    const auto separator = checked(gguf_.separator, "seperator_token_id");
    if (gguf_.model != "bert" && gguf_.add_sep.value_or(false) && separator) ids.push_back(*separator);
    parts_.pair.second_type = ids.size();
    ids.push_back(TokenizerParts::PairFrame::kSecondText);
    if (add_eos) ids.push_back(*parts_.eos);
    if (gguf_.model != "bert") parts_.pair.second_type = ids.size();
  }

  // Adds the known end-of-turn tokens of chat models to those that the file names: many files omit them.
  void set_ends() {
    std::vector<int32_t>& ends = parts_.end_of_generation;
    for (const auto& id : {parts_.eos, checked(gguf_.eot, "eot_token_id"), checked(gguf_.eom, "eom_token_id")}) {
      if (id) ends.push_back(*id);
    }
    const auto control = [&](std::string_view text) {
      const int32_t id = vocabulary_->find(text);
      return id != Vocabulary::kNone && type(id) == Control ? id : Vocabulary::kNone;
    };
    const bool harmony =
        control("<|return|>") != Vocabulary::kNone;  // in the harmony format <|end|> ends a message, not a turn
    for (const std::string_view text :
         {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<turn|>",
          "<|endoftext|>", "<|end_of_text|>", "<EOT>", "[EOT]", "<end_of_utterance>", "<｜end▁of▁sentence｜>"}) {
      const int32_t id = control(text);
      if (id != Vocabulary::kNone && !(harmony && text == "<|end|>")) ends.push_back(id);
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  }

  GgufVocabulary gguf_;
  std::shared_ptr<Vocabulary> vocabulary_ = std::make_shared<Vocabulary>();
  TokenizerParts parts_;
  bool is_cased_ = false;                   // of WordPiece
  bool add_bos_ = false, add_eos_ = false;  // defaults for files without these fields
};

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_gguf(GgufVocabulary vocabulary) {
  return GgufBuilder(std::move(vocabulary)).build();
}

}  // namespace millrace
