#include "text/tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <numeric>

#include "text/tokenizer/merging.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

std::vector<uint32_t> ranks_of(const std::vector<float>& scores) {
  std::vector<uint32_t> order(scores.size()), ranks(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  for (size_t i = 1; i < order.size(); ++i) {
    ranks[order[i]] = ranks[order[i - 1]] + (scores[order[i]] < scores[order[i - 1]]);
  }
  return ranks;
}

}  // namespace

SentencePieceBpe::SentencePieceBpe(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<float>& scores,
                                   std::vector<bool> mergeable, int32_t unknown)
    : vocabulary_(std::move(vocabulary)),
      ranks_(ranks_of(scores)),
      mergeable_(std::move(mergeable)),
      unknown_(unknown),
      splitter_(*vocabulary_) {}

int32_t SentencePieceBpe::find(std::string_view text) const {
  const int32_t id = vocabulary_->find(text);
  return id != Vocabulary::kNone && mergeable_[id] ? id : Vocabulary::kNone;
}

void SentencePieceBpe::encode(std::string_view word, std::vector<int32_t>& ids, TokenModelScratch& scratch) const {
  scratch.symbols.clear();
  for (uint32_t at = 0; at < word.size();) {
    const auto length = static_cast<uint32_t>(utf8_length(word[at]));
    scratch.symbols.push_back({find(word.substr(at, length)), at, length, -1, -1});
    at += length;
  }
  const auto merge_of = [&](const Symbol& left, const Symbol& right) {
    const int32_t id = find(word.substr(left.begin, left.length + right.length));
    return id == Vocabulary::kNone ? kNoMerge : PairMap::Merge{ranks_[id], id};
  };
  Merging(scratch, merge_of).run();
  for (const Symbol& symbol : scratch.symbols) {
    if (symbol.length == 0) continue;
    if (symbol.id != Vocabulary::kNone) {
      ids.push_back(symbol.id);
    } else {
      push_bytes(word.substr(symbol.begin, symbol.length), ids);
    }
  }
}

void SentencePieceBpe::push_bytes(std::string_view text, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  for (const char byte : text) {
    const int32_t id = vocabulary_->byte_token(static_cast<unsigned char>(byte));
    if (id == Vocabulary::kNone) {
      ids.resize(before);
      if (unknown_ != Vocabulary::kNone) ids.push_back(unknown_);
      return;
    }
    ids.push_back(id);
  }
}

}  // namespace millrace
