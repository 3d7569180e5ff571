#include "text/unicode/code_set.h"

#include <algorithm>
#include <map>

namespace millrace {
namespace {
constexpr CodeRange kSurrogates{0xD800, 0xDFFF};
}

void CodeSet::add(uint32_t first, uint32_t last) {
  if (first > last) return;
  if (ranges_.empty() || first > ranges_.back().last + 1) {  // most sets are built in order
    ranges_.push_back({first, last});
    return;
  }
  // Ranges that the new one overlaps or touches are merged with it.
  const auto begin = std::lower_bound(ranges_.begin(), ranges_.end(), first,
                                      [](const CodeRange& range, uint32_t code) { return range.last + 1 < code; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
  }
  ranges_.insert(ranges_.erase(begin, end), CodeRange{first, last});
}

void CodeSet::add(std::span<const CodeRange> ranges) {
  constexpr size_t kFew = 8;  // a sort of all costs more than that many insertions
  if (ranges.size() <= kFew) {
    for (const CodeRange& range : ranges) add(range.first, range.last);
    return;
  }
  ranges_.insert(ranges_.end(), ranges.begin(), ranges.end());
  std::sort(ranges_.begin(), ranges_.end(), [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  size_t kept = 0;
  for (const CodeRange& range : ranges_) {
    if (kept > 0 && range.first <= ranges_[kept - 1].last + 1) {
      ranges_[kept - 1].last = std::max(ranges_[kept - 1].last, range.last);
    } else {
      ranges_[kept++] = range;
    }
  }
  ranges_.resize(kept);
}

void CodeSet::fold_case() {
  // Adds the case folds of all members, then every character that has one of these folds.
  std::vector<CodeRange> more;
  for (const CaseFold& fold : case_folds()) {
    if (contains(fold.code)) more.push_back({fold.folded, fold.folded});
  }
  add(more);
  more.clear();
  for (const CaseFold& fold : case_folds()) {
    if (contains(fold.folded)) more.push_back({fold.code, fold.code});
  }
  add(more);
}

CodeSet CodeSet::complement() const {
  CodeSet all = *this;
  all.add(kSurrogates.first, kSurrogates.last);
  CodeSet result;
  uint32_t next = 0;
  for (const CodeRange& range : all.ranges_) {
    if (range.first > next) result.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) result.ranges_.push_back({next, kLast});
  return result;
}

CodeSet CodeSet::without(const CodeSet& other) const {
  CodeSet outside = complement();
  outside.add(other);
  return outside.complement();
}

CodeSet CodeSet::toggled(const CodeSet& other) const {
  CodeSet result = without(other);
  result.add(other.without(*this));
  return result;
}

bool CodeSet::overlaps(uint32_t first, uint32_t last) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), last,
                                      [](uint32_t code, const CodeRange& range) { return code < range.first; });
  return after != ranges_.begin() && std::prev(after)->last >= first;
}

CodeTable::CodeTable(const CodeSet& set) : pages_(2) {
  constexpr uint16_t kEmpty = 0, kFull = 1;
  pages_[kEmpty].fill(0);
  pages_[kFull].fill(~uint64_t{0});
  std::map<Page, uint16_t> known;
  auto range = set.ranges().begin();
  const auto end_of_ranges = set.ranges().end();
  for (uint32_t block = 0; block < page_of_.size(); ++block) {
    const uint32_t begin = block << 8, last = begin + 255;
    while (range != end_of_ranges && range->last < begin) ++range;
    if (range == end_of_ranges || range->first > last) {
      page_of_[block] = kEmpty;
    } else if (range->first <= begin && range->last >= last) {
      page_of_[block] = kFull;
    } else {
      Page page{};
      for (auto r = range; r != end_of_ranges && r->first <= last; ++r) {
        for (uint32_t code = std::max(r->first, begin); code <= std::min(r->last, last); ++code) {
          page[code >> 6 & 3] |= uint64_t{1} << (code & 63);
        }
      }
      const auto [entry, fresh] = known.try_emplace(page, static_cast<uint16_t>(pages_.size()));
      if (fresh) pages_.push_back(page);
      page_of_[block] = entry->second;
    }
  }
  ascii_ = {pages_[page_of_[0]][0], pages_[page_of_[0]][1]};
}

}  // namespace millrace
