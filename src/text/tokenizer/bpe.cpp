#include "text/tokenizer/bpe.h"

#include "base/error.h"
#include "text/tokenizer/merging.h"
#include "text/unicode/utf8.h"

namespace millrace {

Bpe::Bpe(std::shared_ptr<const Vocabulary> vocabulary, PairMap merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), options_(std::move(options)) {
  unknown_ = options_.unknown_token.empty() ? Vocabulary::kNone : vocabulary_->find(options_.unknown_token);
  for (char32_t c = 0; c < low_ids_.size(); ++c) {
    std::string text;
    append_utf8(text, c);
    low_ids_[c] = vocabulary_->find(text);
  }
  if (!options_.ignore_merges && !decorated()) splitter_.emplace(*vocabulary_);
}

void Bpe::split(std::string_view piece, FunctionRef<void(std::string_view word)> visit) const {
  if (splitter_) return splitter_->split(piece, visit);
  visit(piece);
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids, TokenModelScratch& scratch) const {
  if (options_.ignore_merges) {
    if (const int32_t id = vocabulary_->find(word); id != Vocabulary::kNone) return ids.push_back(id);
  }
  scratch.symbols.clear();
  push_characters(word, scratch);
  const auto find = [this](const Symbol& left, const Symbol& right) {
    const PairMap::Merge* merge = merges_.find(left.id, right.id);
    return merge == nullptr ? kNoMerge : *merge;
  };
  Merging(scratch, find).run();
  for (const Symbol& symbol : scratch.symbols) {
    if (symbol.length > 0) ids.push_back(symbol.id);
  }
}

std::string Bpe::decorate(std::string_view character, bool first, bool last) const {
  std::string text = first ? "" : options_.continuing_subword_prefix;
  text += character;
  if (last) text += options_.end_of_word_suffix;
  return text;
}

int32_t Bpe::character_id(std::string_view character, bool first, bool last) const {
  if (decorated()) return vocabulary_->find(decorate(character, first, last));
  const char32_t code = decode_utf8(character.data()).code;
  return code < low_ids_.size() ? low_ids_[code] : vocabulary_->find(character);
}

// Appends all bytes of the character, or none if a byte has no token.
bool Bpe::push_bytes(std::string_view character, bool first, bool last, uint32_t at, TokenModelScratch& scratch) const {
  const size_t before = scratch.symbols.size();
  for (const char byte : decorated() ? decorate(character, first, last) : std::string(character)) {
    const int32_t id = vocabulary_->byte_token(static_cast<unsigned char>(byte));
    if (id == Vocabulary::kNone) return scratch.symbols.resize(before), false;
    scratch.symbols.push_back({id, at, 1, -1, -1});
  }
  return true;
}

void Bpe::push_characters(std::string_view word, TokenModelScratch& scratch) const {
  // Like Hugging Face: a known character flushes a pending unknown token; byte tokens do not.
  std::optional<Symbol> unknown;
  const auto flush = [&] {
    if (unknown) scratch.symbols.push_back(*unknown);
    unknown.reset();
  };
  for (uint32_t at = 0; at < word.size();) {
    const auto length = static_cast<uint32_t>(utf8_length(word[at]));
    const std::string_view character = word.substr(at, length);
    const bool first = at == 0, last = at + length == word.size();
    if (const int32_t id = character_id(character, first, last); id != Vocabulary::kNone) {
      flush();
      scratch.symbols.push_back({id, at, length, -1, -1});
    } else if (!(options_.byte_fallback && push_bytes(character, first, last, at, scratch)) &&
               !options_.unknown_token.empty()) {
      if (unknown_ == Vocabulary::kNone) {
        fail(ErrorKind::BadFile, "the text needs the tokenizer's unknown token '{}', which its vocabulary lacks",
             options_.unknown_token);
      }
      if (unknown && options_.fuse_unknown) {
        unknown->length += length;
      } else {
        flush();
        unknown = Symbol{unknown_, at, length, -1, -1};
      }
    }
    at += length;
  }
  flush();
}

}  // namespace millrace
