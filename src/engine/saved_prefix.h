// Copies cached pages out of the state cache and back into another one, so that a later process need not compute the
// beginning of a prompt again.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cache/prefix_tree.h"
#include "cache/state_cache.h"
#include "hardware/device.h"

namespace millrace {

struct SavedPrefix {
  int32_t tokens = 0;            // that the pages hold
  std::vector<std::byte> pages;  // [page][layer]: keys, then values
};

size_t saved_page_bytes(const StateCache& state);

// The pages that the tree has for the longest beginning of `tokens`. Empty for recurrent state, which pages do not
// hold.
SavedPrefix save_prefix(StateCache& state, PrefixTree& tree, Device& device, std::span<const int32_t> tokens);

// Puts pages of a state cache of the same layout into the tree; `tokens` are those of the pages. Returns the number of
// restored tokens, which is smaller if free pages run out. Ignores pages that do not fit the number of tokens.
int32_t restore_prefix(StateCache& state, PrefixTree& tree, Device& device, std::span<const int32_t> tokens,
                       std::span<const std::byte> pages);

}  // namespace millrace
