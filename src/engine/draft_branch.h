// A second guess of a sequence's next tokens within one step. A tree of drafts is the sequence's draft and a few
// branches that differ from it in the first token. A branch is verified as a fork of the sequence: it has its own copy
// of the page being filled and own pages behind it, and computes the last known token again there. So every kernel sees
// chains only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/state_cache.h"

namespace millrace {

struct DraftBranch {
  BlockTable table;             // shares the full pages of the sequence; no pages: the branch is not open
  std::vector<int32_t> tokens;  // the last known token, then the draft
  int32_t row = 0;              // its first row, counted from the first row of the sequence in the step

  std::span<const int32_t> draft() const { return std::span(tokens).subspan(tokens.empty() ? 0 : 1); }
  int32_t rows() const { return static_cast<int32_t>(tokens.size()); }
  void close() {  // gives the pages back
    tokens.clear();
    table.clear();
  }
};

// Makes the empty `fork` a table for `tokens` positions with the first `past` rows of `table`. Takes new pages from the
// one that holds row `past` on. False, with nothing changed, if too few are free.
inline bool fork_pages(StateCache& state, const BlockTable& table, int32_t past, int32_t tokens, BlockTable& fork) {
  const int32_t block = state.options().block_size;
  const auto full = static_cast<size_t>(past / block);
  for (const int32_t page : table.pages().first(full)) fork.share(page);
  if (!fork.reserve(tokens)) {
    fork.clear();
    return false;
  }
  if (past % block != 0) state.copy_page(table.pages()[full], fork.pages()[full]);
  return true;
}

}  // namespace millrace
