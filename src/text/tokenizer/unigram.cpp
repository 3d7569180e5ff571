#include "text/tokenizer/unigram.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

constexpr double kUnknownPenalty = 10.0;  // subtracted from the worst token's score
constexpr size_t kLongestToken = 1024;

ByteTrie trie_of(const Vocabulary& vocabulary, const std::vector<bool>& usable) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.text(id);
    if (text.empty() || !usable[id] || vocabulary.find(text) != id) continue;
    if (text.size() > kLongestToken) {
      fail(ErrorKind::BadFile, "the tokenizer's token {} is {} bytes long", id, text.size());
    }
    entries.emplace_back(text, id);
  }
  return ByteTrie(std::move(entries));
}

}  // namespace

Unigram::Unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores,
                 const std::vector<bool>& usable, int32_t unknown, bool byte_fallback)
    : vocabulary_(std::move(vocabulary)),
      scores_(std::move(scores)),
      unknown_(unknown),
      byte_fallback_(byte_fallback),
      unknown_score_((scores_.empty() ? 0.0 : *std::min_element(scores_.begin(), scores_.end())) - kUnknownPenalty),
      trie_(trie_of(*vocabulary_, usable)) {}

void Unigram::encode(std::string_view word, std::vector<int32_t>& ids, TokenModelScratch& scratch) const {
  find_best(word, scratch.steps);
  const size_t before = ids.size();
  // Walks backwards from the end. Adjacent unknown characters become one token, so their text is collected first.
  auto end = static_cast<int32_t>(word.size());
  while (end > 0) {
    const TokenModelScratch::Step& step = scratch.steps[end];
    int32_t start = step.start;
    if (step.id != unknown_) {
      ids.push_back(step.id);
    } else {
      while (start > 0 && scratch.steps[start].id == unknown_) start = scratch.steps[start].start;
      const size_t from = ids.size();
      push_unknown(word.substr(start, end - start), ids);
      std::reverse(ids.begin() + from, ids.end());
    }
    end = start;
  }
  std::reverse(ids.begin() + before, ids.end());
}

void Unigram::find_best(std::string_view word, std::vector<TokenModelScratch::Step>& steps) const {
  steps.assign(word.size() + 1, {0.0, -1, Vocabulary::kNone});
  const auto offer = [&](size_t start, size_t end, double score, int32_t id) {
    TokenModelScratch::Step& step = steps[end];
    if (step.start < 0 || score > step.score) step = {score, static_cast<int32_t>(start), id};
  };
  for (size_t start = 0; start < word.size();) {
    const double so_far = steps[start].score;
    const size_t length = utf8_length(word[start]);
    bool single = false;
    uint32_t node = ByteTrie::kRoot;
    for (size_t end = start; end < word.size();) {
      node = trie_.child(node, static_cast<unsigned char>(word[end++]));
      if (node == ByteTrie::kNone) break;
      const int32_t id = trie_.value(node);
      if (id < 0) continue;
      offer(start, end, so_far + scores_[id], id);
      single |= end - start == length;
    }
    if (!single) offer(start, start + length, so_far + unknown_score_, unknown_);
    start += length;
  }
}

void Unigram::push_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  if (const int32_t id = vocabulary_->find(text); id != Vocabulary::kNone) return ids.push_back(id);
  const size_t before = ids.size();
  bool bytes = byte_fallback_;
  for (size_t i = 0; bytes && i < text.size(); ++i) {
    ids.push_back(vocabulary_->byte_token(static_cast<unsigned char>(text[i])));
    bytes = ids.back() != Vocabulary::kNone;
  }
  if (bytes) return;
  ids.resize(before);
  if (unknown_ == Vocabulary::kNone) {
    fail(ErrorKind::BadFile, "the text has characters the tokenizer does not know, and it has no unknown token");
  }
  ids.push_back(unknown_);
}

}  // namespace millrace
