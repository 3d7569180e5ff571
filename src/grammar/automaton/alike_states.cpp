// States that no token can tell apart. A repetition that has reached its minimum, and whose maximum is further away
// than the longest token, allows the same tokens at every count. A string with maxLength then has one mask for most of
// its length.
#include <algorithm>

#include "grammar/automaton/pushdown.h"

namespace millrace {
namespace {

constexpr int kDeepestAlike = 500;

}  // namespace

Pushdown::State Pushdown::alike(State state, int32_t token_bytes) {
  alike_.resize(states_.size(), kUnknown);
  if (alike_[static_cast<size_t>(state)] != kUnknown) return alike_[static_cast<size_t>(state)];
  const StateItems from = states_[static_cast<size_t>(state)];
  std::vector<Item> items(items_.begin() + static_cast<ptrdiff_t>(from.first),
                          items_.begin() + static_cast<ptrdiff_t>(from.first + from.size));
  for (Item& item : items) item.stack = alike_stack(item.stack, token_bytes, 0);
  const State found = intern_state(items, from.accepting);
  alike_.resize(states_.size(), kUnknown);
  alike_[static_cast<size_t>(found)] = found;
  return alike_[static_cast<size_t>(state)] = found;
}

int32_t Pushdown::alike_stack(int32_t stack, int32_t token_bytes, int depth) {
  if (depth > kDeepestAlike) return stack;
  if (const auto known = alike_stacks_.find(stack); known != alike_stacks_.end()) return known->second;
  const StackSet set = stacks_[static_cast<size_t>(stack)];
  std::vector<Frame> frames(frames_.begin() + static_cast<ptrdiff_t>(set.first),
                            frames_.begin() + static_cast<ptrdiff_t>(set.first + set.size));
  int32_t last = -1;
  for (Frame& frame : frames) {  // sorted by node
    if (frame.node == last) return alike_stacks_[stack] = stack;
    last = frame.node;
    frame.below = alike_stack(frame.below, token_bytes, depth + 1);
    const ProgramNode& node = program_.nodes[static_cast<size_t>(frame.node)];
    const bool repeats = node.kind == ProgramNode::Kind::Repeat && frame.count >= node.least;
    if (repeats && int64_t{frame.count} + token_bytes + 2 <= node.most) frame.count = node.least;
  }
  const int32_t found = intern_stack(frames, set.bottom);
  return alike_stacks_[stack] = found;
}

}  // namespace millrace
