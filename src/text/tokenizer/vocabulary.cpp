#include "text/tokenizer/vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/hash.h"

namespace millrace {

void Vocabulary::add(std::string_view text, int64_t id) {
  constexpr int64_t kMostIds = 1 << 22;
  constexpr size_t kMostBytes = size_t{1} << 31;
  if (id < 0 || id >= kMostIds) {
    fail(ErrorKind::BadFile, "the tokenizer gives token '{}' the impossible id {}", text.substr(0, 100), id);
  }
  if (bytes_.size() + text.size() > kMostBytes) {
    fail(ErrorKind::BadFile, "the tokenizer's vocabulary is larger than 2 GiB");
  }
  if (entries_.size() * 2 >= slots_.size()) grow();
  uint32_t& slot = slots_[find_slot(text)];
  if (slot == 0) {
    entries_.push_back(
        {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(text.size()), static_cast<int32_t>(id)});
    bytes_ += text;
    slot = static_cast<uint32_t>(entries_.size());
    longest_ = std::max(longest_, text.size());
  }
  entries_[slot - 1].id = static_cast<int32_t>(id);
  if (entry_of_id_.size() <= static_cast<size_t>(id)) entry_of_id_.resize(id + 1);
  entry_of_id_[id] = slot;
}

int32_t Vocabulary::find(std::string_view text) const {
  if (text.size() > longest_ || slots_.empty()) return kNone;
  const uint32_t slot = slots_[find_slot(text)];
  return slot == 0 ? kNone : entries_[slot - 1].id;
}

std::string_view Vocabulary::text(int32_t id) const {
  if (id < 0 || id >= size() || entry_of_id_[id] == 0) return {};
  return text_of(entries_[entry_of_id_[id] - 1]);
}

int32_t Vocabulary::byte_token(unsigned char byte) const {
  constexpr char kDigits[] = "0123456789ABCDEF";
  const char text[] = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
  return find({text, sizeof text});
}

size_t Vocabulary::find_slot(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  size_t i = hash_bytes(text) & mask;
  while (slots_[i] != 0 && text_of(entries_[slots_[i] - 1]) != text) i = (i + 1) & mask;
  return i;
}

void Vocabulary::grow() {
  slots_.assign(std::max<size_t>(1024, slots_.size() * 2), 0);
  for (size_t i = 0; i < entries_.size(); ++i) slots_[find_slot(text_of(entries_[i]))] = static_cast<uint32_t>(i + 1);
}

}  // namespace millrace
