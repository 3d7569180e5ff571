#include "text/unicode/code_set.h"

#include <algorithm>
#include <map>

namespace millrace {
namespace {
constexpr uint32_t kLastCode = 0x10FFFF;
}

void CodeSet::add(uint32_t first, uint32_t last) {
  const CodeRange range{first, last};
  if (ranges_.empty() || first > ranges_.back().last + 1) {
    ranges_.push_back(range);  // sets are mostly built in order
  } else if (first >= ranges_.back().first) {
    ranges_.back().last = std::max(ranges_.back().last, last);
  } else {
    add(std::span(&range, 1));
  }
}

void CodeSet::add(std::span<const CodeRange> ranges) {
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
  // First what members fold to, then all that folds to those.
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
  CodeSet result;
  uint32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.first > next) result.add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastCode) result.add(next, kLastCode);
  return result;
}

CodeSet CodeSet::intersection(const CodeSet& other) const {
  CodeSet neither = complement();
  neither.add(other.complement());
  return neither.complement();
}

CodeSet CodeSet::toggled(const CodeSet& other) const {
  CodeSet result = intersection(other.complement());
  result.add(other.intersection(complement()));
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
