#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "text/detokenizer.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

// Maps earlier words to the position of their ids in the output.
class WordCache {
 public:
  WordCache(const TokenModel& model, std::vector<int32_t>& ids) : model_(model), ids_(ids), slots_(kSlots) {}

  void encode(std::string_view word) {
    constexpr size_t kLongest = 64;
    if (word.size() > kLongest) return model_.encode(word, ids_, scratch_);
    Slot& slot = slots_[hash_bytes(word) % kSlots];
    const size_t begin = ids_.size();
    if (slot.generation == generation_ && slot.word == word) {
      ids_.resize(begin + slot.count);
      std::copy_n(ids_.begin() + slot.begin, slot.count, ids_.begin() + begin);
      return;
    }
    model_.encode(word, ids_, scratch_);
    slot = {word, begin, ids_.size() - begin, generation_};
  }

  void clear() { ++generation_; }  // call before the texts that the words point into are freed

 private:
  static constexpr size_t kSlots = 1024;
  struct Slot {
    std::string_view word;
    size_t begin = 0, count = 0;
    uint64_t generation = 0;
  };

  const TokenModel& model_;
  std::vector<int32_t>& ids_;
  std::vector<Slot> slots_;
  uint64_t generation_ = 1;
  TokenModelScratch scratch_;
};

class Encoding {
 public:
  Encoding(const TokenizerParts& parts, const EncodeOptions& options)
      : parts_(parts), options_(options), cache_(*parts.model, ids_) {}

  std::vector<int32_t> run(std::string_view text) {
    const auto is_special = [&](size_t begin, size_t end) { return options_.parse_special && !overlaps(begin, end); };
    parts_.raw_finder.split(text, is_special, [&](std::string_view stretch, const AddedToken* token) {
      if (token != nullptr) return ids_.push_back(token->id);
      const auto begin = static_cast<size_t>(stretch.data() - text.data());
      normalize(stretch, begin == 0, contents(text, begin, begin + stretch.size()));
    });
    return std::move(ids_);
  }

 private:
  using Ranges = std::span<const std::pair<size_t, size_t>>;

  // The first range of content that ends behind `begin`.
  Ranges::iterator content_at(size_t begin) const {
    return std::upper_bound(options_.content.begin(), options_.content.end(), begin,
                            [](size_t position, const auto& range) { return position < range.second; });
  }
  bool overlaps(size_t begin, size_t end) const {
    const auto range = content_at(begin);
    return range != options_.content.end() && range->first < end;
  }
  std::vector<std::string_view> contents(std::string_view text, size_t begin, size_t end) const {
    std::vector<std::string_view> parts;
    if (parts_.normalized_finder.empty()) return parts;
    for (auto range = content_at(begin); range != options_.content.end() && range->first < end; ++range) {
      const size_t first = std::max(range->first, begin);
      parts.push_back(text.substr(first, std::min(range->second, end) - first));
    }
    return parts;
  }

  // `contents`: the parts of the stretch that are content. Normalization moves them, so a special token of the
  // normalized text is plain text if one of them has its text.
  void normalize(std::string_view stretch, bool at_start, const std::vector<std::string_view>& contents) {
    NormalizedText text{std::string(stretch)};
    if (parts_.normalizer) parts_.normalizer->apply(text);
    std::map<std::string_view, bool> in_contents;  // one search for each token: the time stays linear
    const auto is_special = [&](size_t begin, size_t end) {
      const std::string_view token = std::string_view(text.text).substr(begin, end - begin);
      const auto [known, is_new] = in_contents.try_emplace(token);
      if (is_new) {
        known->second = std::any_of(contents.begin(), contents.end(), [&](std::string_view content) {
          return content.find(token) != std::string_view::npos;
        });
      }
      return options_.parse_special && !known->second;
    };
    parts_.normalized_finder.split(text.text, is_special, [&](std::string_view part, const AddedToken* token) {
      if (token != nullptr) return ids_.push_back(token->id);
      encode(part, at_start && text.front_kept && part.data() == text.text.data());
    });
  }

  void encode(std::string_view text, bool at_start) {
    PreTokens pieces{{{text, at_start}}, {}, 4096 + 64 * text.size()};
    if (parts_.pre_tokenizer) parts_.pre_tokenizer->split(pieces);
    for (const PreToken& piece : pieces.list) {
      parts_.model->split(piece.text, [&](std::string_view word) { cache_.encode(word); });
    }
    cache_.clear();
  }

  const TokenizerParts& parts_;
  const EncodeOptions& options_;
  std::vector<int32_t> ids_;
  WordCache cache_;
};

}  // namespace

void TokenizerParts::finish() {
  int32_t size = vocabulary->size();
  for (const AddedToken& token : added) size = std::max(size, token.id + 1);
  entries.resize(size);
  std::array<std::vector<const AddedToken*>, 2> tokens;
  std::array<std::vector<std::string>, 2> texts;
  for (const AddedToken& token : added) {
    NormalizedText text{token.content};
    if (token.normalized && normalizer) normalizer->apply(text);
    entries[token.id] = {&token, text.text == token.content ? "" : text.text};
    tokens[token.normalized].push_back(&token);
    texts[token.normalized].push_back(std::move(text.text));
  }
  raw_finder = AddedTokenFinder(tokens[false], texts[false]);
  normalized_finder = AddedTokenFinder(tokens[true], texts[true]);
  const auto check = [&](int32_t id) {
    if (id < 0 || id >= size)
      fail(ErrorKind::BadFile, "the tokenizer's post-processor adds token {}, which does not exist", id);
  };
  for (const int32_t id : frame) {
    if (id != kText) check(id);
  }
  for (const int32_t id : pair.ids) {
    if (id != kText && id != PairFrame::kSecondText) check(id);
  }
}

Tokenizer::Tokenizer(TokenizerParts parts) {
  auto owned = std::make_unique<TokenizerParts>(std::move(parts));
  owned->finish();
  parts_ = std::move(owned);
}

Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    text = repaired = repair_utf8(text);
    if (!options.content.empty()) options.parse_special = false;  // the ranges no longer fit
  }
  std::vector<int32_t> ids = Encoding(*parts_, options).run(text);
  if (!options.add_special || parts_->frame.size() == 1) return ids;
  std::vector<int32_t> framed;
  for (const int32_t id : parts_->frame) {
    if (id == TokenizerParts::kText) {
      framed.insert(framed.end(), ids.begin(), ids.end());
    } else {
      framed.push_back(id);
    }
  }
  return framed;
}

EncodedPair Tokenizer::encode_pair(std::string_view first, std::string_view second, size_t most) const {
  std::vector<int32_t> a = encode(first, {.add_special = false}), b = encode(second, {.add_special = false});
  const size_t around = parts_->pair.ids.size() - std::min<size_t>(2, parts_->pair.ids.size());
  while (most > 0 && a.size() + b.size() + around > most && !(a.empty() && b.empty()))
    (a.size() > b.size() ? a : b).pop_back();
  EncodedPair pair;
  const auto& frame = parts_->pair;
  for (size_t i = 0; i < frame.ids.size(); ++i) {
    if (i == frame.second_type) pair.second = static_cast<int32_t>(pair.ids.size());
    const int32_t id = frame.ids[i];
    if (id == TokenizerParts::kText) {
      pair.ids.insert(pair.ids.end(), a.begin(), a.end());
    } else if (id == TokenizerParts::PairFrame::kSecondText) {
      pair.ids.insert(pair.ids.end(), b.begin(), b.end());
    } else {
      pair.ids.push_back(id);
    }
  }
  return pair;
}

void Tokenizer::push_token(DecodeStream& stream, int32_t id, bool skip_special) const {
  if (id < 0 || id >= vocab_size()) return;
  const TokenizerParts::TokenEntry& entry = parts_->entries[id];
  if (entry.added != nullptr) {
    if (!(skip_special && entry.added->special)) {
      stream.push(entry.normalized.empty() ? entry.added->content : entry.normalized);
    }
  } else if (const std::string_view text = parts_->vocabulary->text(id); !text.empty()) {
    stream.push(text);
  }
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  DecodeStream stream(parts_->decoders);
  for (const int32_t id : ids) push_token(stream, id, skip_special);
  stream.finish();
  return stream.take();
}

std::string_view Tokenizer::token_text(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const AddedToken* added = parts_->entries[id].added;
  return added != nullptr ? std::string_view(added->content) : parts_->vocabulary->text(id);
}

std::string Tokenizer::token_bytes(int32_t id) const {
  std::string bytes(token_text(id));
  if (id < 0 || id >= vocab_size() || parts_->entries[id].added != nullptr) return bytes;
  for (const DecodeStep& step : parts_->decoders) {
    if (step.token_bytes) bytes = step.token_bytes(std::move(bytes));
  }
  return bytes;
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  for (const AddedToken& added : parts_->added) {
    if (added.content == token) return added.id;
  }
  const int32_t id = parts_->vocabulary->find(token);
  return id == Vocabulary::kNone ? std::nullopt : std::optional(id);
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(parts_->entries.size()); }

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && parts_->entries[id].added != nullptr && parts_->entries[id].added->special;
}

std::optional<int32_t> Tokenizer::bos() const { return parts_->bos; }
std::optional<int32_t> Tokenizer::eos() const { return parts_->eos; }
std::optional<int32_t> Tokenizer::unknown() const { return parts_->unknown; }
std::optional<int32_t> Tokenizer::padding() const { return parts_->padding; }
const std::vector<int32_t>& Tokenizer::end_of_generation() const { return parts_->end_of_generation; }

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      stream_(std::make_unique<DecodeStream>(tokenizer.parts_->decoders)) {}

StreamingDetokenizer::~StreamingDetokenizer() = default;

std::string StreamingDetokenizer::push(int32_t id) {
  tokenizer_.push_token(*stream_, id, skip_special_);
  return stream_->take();
}

std::string StreamingDetokenizer::finish() {
  stream_->finish();
  return stream_->take();
}

}  // namespace millrace
