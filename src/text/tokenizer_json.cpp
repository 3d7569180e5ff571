// Builds a tokenizer from tokenizer.json of Hugging Face tokenizers and a few fields of tokenizer_config.json.
#include <algorithm>
#include <map>

#include "text/tokenizer.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/json_parts.h"
#include "text/tokenizer/json_reader.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/wordpiece.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

// Assigns ids like Hugging Face: the id in the vocabulary, else the next free one. Ignores the id in the file.
std::vector<AddedToken> read_added_tokens(const TokenizerJson& json) {
  std::vector<AddedToken> tokens;
  const Json& tree = json.tree;
  const Vocabulary& vocabulary = *json.vocabulary;
  if (find_field(tree, "added_tokens") == nullptr) return tokens;
  // A vocabulary in list form may repeat tokens, and repeated tokens count.
  auto next_id = static_cast<int32_t>(std::max(vocabulary.count(), json.scores.size()));
  std::map<std::string, size_t> known;
  for (const Json& entry : array_field(tree, "added_tokens")) {
    AddedToken token;
    token.content = string_field(entry, "content");
    token.special = bool_field(entry, "special", false);
    token.single_word = bool_field(entry, "single_word", false);
    token.lstrip = bool_field(entry, "lstrip", false);
    token.rstrip = bool_field(entry, "rstrip", false);
    token.normalized = bool_field(entry, "normalized", !token.special);
    if (token.content.empty()) continue;
    const auto [place, fresh] = known.try_emplace(token.content, tokens.size());
    if (!fresh) {  // the last description wins
      token.id = tokens[place->second].id;
      tokens[place->second] = std::move(token);
      continue;
    }
    token.id = vocabulary.find(token.content);
    if (token.id == Vocabulary::kNone) token.id = next_id++;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

PairMap read_merges(const TokenizerJson& json, size_t prefix_length) {
  const Vocabulary& vocabulary = *json.vocabulary;
  PairMap merges(json.merges.size());
  std::string_view rest = json.merge_bytes;
  std::string joined;
  for (size_t rank = 0; rank < json.merges.size(); ++rank) {
    const auto [left_length, right_length] = json.merges[rank];
    const std::string_view left = rest.substr(0, left_length), right = rest.substr(left_length, right_length);
    rest.remove_prefix(left_length + right_length);
    joined.assign(left);
    joined += right.substr(std::min(prefix_length, right.size()));
    const int32_t left_id = vocabulary.find(left), right_id = vocabulary.find(right), id = vocabulary.find(joined);
    if (left_id == Vocabulary::kNone || right_id == Vocabulary::kNone || id == Vocabulary::kNone) {
      fail(ErrorKind::BadFile, "tokenizer.json: merge {} ('{}' and '{}') uses a token that is not in the vocabulary",
           rank, left, right);
    }
    merges.insert(left_id, right_id, {static_cast<uint32_t>(rank), id});
  }
  return merges;
}

std::unique_ptr<TokenModel> read_bpe(const TokenizerJson& json, const Json& model) {
  if (const Json* dropout = find_field(model, "dropout"); dropout != nullptr && *dropout != 0) {
    fail(ErrorKind::Unsupported, "tokenizer.json: BPE with dropout is not supported, its tokens are random");
  }
  if (!json.has_merges) fail(ErrorKind::BadFile, "tokenizer.json: BPE has no 'merges'");
  BpeOptions options{.unknown_token = string_field(model, "unk_token", ""),
                     .continuing_subword_prefix = string_field(model, "continuing_subword_prefix", ""),
                     .end_of_word_suffix = string_field(model, "end_of_word_suffix", ""),
                     .fuse_unknown = bool_field(model, "fuse_unk", false),
                     .byte_fallback = bool_field(model, "byte_fallback", false),
                     .ignore_merges = bool_field(model, "ignore_merges", false)};
  return std::make_unique<Bpe>(json.vocabulary, read_merges(json, options.continuing_subword_prefix.size()),
                               std::move(options));
}

std::unique_ptr<TokenModel> read_unigram(TokenizerJson& json, const Json& model, const std::vector<AddedToken>& added) {
  if (json.scores.empty()) fail(ErrorKind::BadFile, "tokenizer.json: Unigram has no list of tokens and scores");
  const int64_t unknown = integer_field(model, "unk_id", Vocabulary::kNone);
  if (unknown >= static_cast<int64_t>(json.scores.size())) {
    fail(ErrorKind::BadFile, "tokenizer.json: unk_id {} is not in the vocabulary", unknown);
  }
  std::vector<bool> usable(json.scores.size(), true);
  for (const AddedToken& token : added) {
    // Only the added-token finder produces special tokens, never the model.
    if (token.special && token.id < static_cast<int32_t>(usable.size())) usable[token.id] = false;
  }
  return std::make_unique<Unigram>(json.vocabulary, std::move(json.scores), usable,
                                   static_cast<int32_t>(std::max<int64_t>(unknown, Vocabulary::kNone)),
                                   bool_field(model, "byte_fallback", false));
}

std::unique_ptr<TokenModel> read_model(TokenizerJson& json, const std::vector<AddedToken>& added) {
  const Json& model = field(json.tree, "model");
  std::string type = find_field(model, "type") != nullptr ? type_name(model)
                     : json.has_merges                    ? "BPE"
                     : json.scores.empty()                ? ""
                                                          : "Unigram";
  if (type == "BPE") return read_bpe(json, model);
  if (type == "Unigram") return read_unigram(json, model, added);
  if (type == "WordPiece") {
    const int64_t longest = std::max<int64_t>(0, integer_field(model, "max_input_chars_per_word", 100));
    return std::make_unique<WordPiece>(json.vocabulary, string_field(model, "unk_token", "[UNK]"),
                                       string_field(model, "continuing_subword_prefix", "##"),
                                       static_cast<size_t>(longest));
  }
  if (type == "WordLevel") {
    return std::make_unique<WordLevel>(json.vocabulary, string_field(model, "unk_token", "<unk>"));
  }
  fail(ErrorKind::Unsupported, "tokenizer.json: the model '{}' is not supported", type);
}

// In tokenizer_config.json a token is a string, or an object with the string as "content".
std::optional<int32_t> named_token(const Json& config, const char* key, const TokenizerParts& parts) {
  const Json* value = find_field(config, key);
  if (value != nullptr && value->is_object()) value = find_field(*value, "content");
  if (value == nullptr || !value->is_string()) return std::nullopt;
  const auto text = value->get<std::string>();
  for (const AddedToken& token : parts.added) {
    if (token.content == text) return token.id;
  }
  const int32_t id = parts.vocabulary->find(text);
  return id == Vocabulary::kNone ? std::nullopt : std::optional(id);
}

void apply_config(std::string_view text, TokenizerParts& parts) {
  if (text.empty()) return;
  const Json config = read_json(text, "tokenizer_config.json");
  parts.bos = named_token(config, "bos_token", parts);
  parts.eos = named_token(config, "eos_token", parts);
  parts.unknown = named_token(config, "unk_token", parts);
  parts.padding = named_token(config, "pad_token", parts);
  if (parts.eos) parts.end_of_generation = {*parts.eos};
  // In the harmony format a tool call ends the answer, too. Not every folder's generation_config.json says so.
  const auto added = [&](std::string_view text) {
    const auto found = std::find_if(parts.added.begin(), parts.added.end(),
                                    [&](const AddedToken& token) { return token.content == text; });
    return found == parts.added.end() ? std::nullopt : std::optional(found->id);
  };
  const auto call = added("<|call|>");
  if (call && parts.eos && parts.eos == added("<|return|>")) parts.end_of_generation.push_back(*call);
  // If the config has either field, transformers ignores the post-processor.
  if (find_field(config, "add_bos_token") == nullptr && find_field(config, "add_eos_token") == nullptr) return;
  parts.frame.clear();
  if (bool_field(config, "add_bos_token", false) && parts.bos) parts.frame.push_back(*parts.bos);
  parts.frame.push_back(TokenizerParts::kText);
  if (bool_field(config, "add_eos_token", false) && parts.eos) parts.frame.push_back(*parts.eos);
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view tokenizer_json,
                                                     std::string_view tokenizer_config_json) {
  TokenizerJson json = read_tokenizer_json(tokenizer_json);
  const auto part = [&](const char* key) -> const Json& {
    static const Json none;
    const Json* found = find_field(json.tree, key);
    return found == nullptr ? none : *found;
  };
  TokenizerParts parts;
  parts.vocabulary = json.vocabulary;
  parts.added = read_added_tokens(json);
  parts.model = read_model(json, parts.added);
  parts.normalizer = normalizer_from_json(part("normalizer"));
  parts.pre_tokenizer = pre_tokenizer_from_json(part("pre_tokenizer"));
  parts.decoders = decoders_from_json(part("decoder"));
  parts.frame = frame_from_json(part("post_processor"));
  parts.pair = pair_from_json(part("post_processor"));
  apply_config(tokenizer_config_json, parts);
  return std::make_shared<const Tokenizer>(std::move(parts));
}

}  // namespace millrace
