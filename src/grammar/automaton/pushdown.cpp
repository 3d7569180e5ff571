#include "grammar/automaton/pushdown.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

using NodeKind = ProgramNode::Kind;

constexpr int kDeepestUnion = 2000;
constexpr int64_t kFirstWork = 1 << 20;
constexpr int32_t kReturn = -1;  // the count of a frame of a Call

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

}  // namespace

Pushdown::Pushdown(GrammarProgram program)
    : program_(std::move(program)),
      width_(static_cast<size_t>(program_.byte_kinds)),
      place_(program_.nodes.size(), -1) {
  reset();
}

void Pushdown::reset() {
  states_.clear();
  items_.clear();
  table_.clear();
  state_index_.clear();
  stacks_.clear();
  frames_.clear();
  stack_index_.clear();
  united_.clear();
  alike_.clear();
  alike_stacks_.clear();
  allow(kFirstWork);
  begin_closure();
  enter(program_.start, intern_stack({}, true));
  start_ = intern_state();
}

size_t Pushdown::bytes() const {
  constexpr size_t kUnionBytes = 40;
  return states_.size() * sizeof(StateItems) + items_.size() * sizeof(Item) + table_.size() * sizeof(State) +
         stacks_.size() * sizeof(StackSet) + frames_.size() * sizeof(Frame) +
         (united_.size() + alike_stacks_.size()) * kUnionBytes + alike_.size() * sizeof(State) + state_index_.memory() +
         stack_index_.memory();
}

Pushdown::State Pushdown::step(State state, uint8_t byte) {
  begin_closure();
  const StateItems from = states_[static_cast<size_t>(state)];
  const ProgramNode* only = nullptr;  // if a single node takes the byte
  int taken = 0;
  int32_t next = -1;
  for (size_t i = from.first; i < from.first + from.size; ++i) {
    const Item item = items_[i];
    const ProgramNode& node = program_.nodes[static_cast<size_t>(item.node)];
    const ByteEdge* edge = find_edge(node, byte);
    if (!edge || edge->from > byte) continue;
    only = taken++ == 0 ? &node : nullptr;
    next = edge->next;
    enter(next, item.stack);
  }
  const State to = intern_state();
  State* row = &table_[static_cast<size_t>(state) * width_];
  row[program_.kind_of_byte[byte]] = to;
  if (!only) return to;
  for (int32_t i = only->first; i < only->first + only->count; ++i) {
    const ByteEdge& edge = program_.edges[static_cast<size_t>(i)];
    if (edge.next != next || !takes_alone(from, *only, edge)) continue;
    std::fill(row + program_.kind_of_byte[edge.from], row + program_.kind_of_byte[edge.to] + 1, to);
  }
  return to;
}

// The first edge whose end is not below the byte; null: there is none.
const ByteEdge* Pushdown::find_edge(const ProgramNode& node, uint8_t byte) const {
  const ByteEdge *first = program_.edges.data() + node.first, *end = first + node.count;
  const ByteEdge* edge = std::lower_bound(first, end, byte, [](const ByteEdge& e, uint8_t b) { return e.to < b; });
  return edge == end ? nullptr : edge;
}

// Whether no other node of the state takes one of the edge's bytes.
bool Pushdown::takes_alone(const StateItems& state, const ProgramNode& node, const ByteEdge& edge) const {
  for (size_t i = state.first; i < state.first + state.size; ++i) {
    const ProgramNode& other = program_.nodes[static_cast<size_t>(items_[i].node)];
    if (&other == &node) continue;
    const ByteEdge* near = find_edge(other, edge.from);
    if (near && near->from <= edge.to) return false;
  }
  return true;
}

void Pushdown::begin_closure() {
  for (const Item& item : closure_) place_[static_cast<size_t>(item.node)] = -1;
  closure_.clear();
  waiting_.clear();
  accepting_ = false;
}

// Interns the state: its Bytes nodes with their sets of stacks.
Pushdown::State Pushdown::intern_state() {
  std::vector<Item>& items = kept_;
  items.clear();
  for (const Item& item : closure_) {
    if (program_.nodes[static_cast<size_t>(item.node)].kind == NodeKind::Bytes) items.push_back(item);
  }
  if (items.empty() && !accepting_) return kDead;
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.node < b.node; });
  return intern_state(items, accepting_);
}

Pushdown::State Pushdown::intern_state(std::span<const Item> items, bool accepting) {
  uint64_t hash = accepting;
  for (const Item& item : items)
    hash = mix(mix(hash, static_cast<uint64_t>(item.node)), static_cast<uint64_t>(item.stack));
  const State known = state_index_.find(hash, [&](State one) {
    const StateItems& state = states_[static_cast<size_t>(one)];
    const auto first = items_.begin() + static_cast<ptrdiff_t>(state.first);
    return state.accepting == accepting && state.size == items.size() && std::equal(items.begin(), items.end(), first);
  });
  if (known != InternIndex::kNone) return known;
  const auto state = static_cast<State>(states_.size());
  states_.push_back({items_.size(), items.size(), accepting});
  items_.insert(items_.end(), items.begin(), items.end());
  table_.resize(table_.size() + width_, kUnknown);
  state_index_.add(hash, state);
  return state;
}

// Adds a node with its stacks, and all that is reachable from it without a byte.
void Pushdown::enter(int32_t node, int32_t stack) {
  waiting_.push_back({node, stack});
  while (!waiting_.empty()) {
    Item item = waiting_.back();
    waiting_.pop_back();
    spend(1);
    int32_t& place = place_[static_cast<size_t>(item.node)];
    if (place < 0) {
      place = static_cast<int32_t>(closure_.size());
      closure_.push_back(item);
    } else {
      Item& known = closure_[static_cast<size_t>(place)];
      const int32_t both = unite(known.stack, item.stack);
      if (both == known.stack) continue;
      known.stack = both;
    }
    expand(item.node, item.stack);
  }
}

void Pushdown::expand(int32_t index, int32_t stack) {
  const ProgramNode& node = program_.nodes[static_cast<size_t>(index)];
  switch (node.kind) {
    case NodeKind::Bytes:
      return;
    case NodeKind::Split:
      for (int32_t i = 0; i < node.count; ++i)
        waiting_.push_back({program_.targets[static_cast<size_t>(node.first + i)], stack});
      return;
    case NodeKind::Call: {
      // A tail call pushes no frame: it returns to the caller of its rule.
      const bool last = program_.nodes[static_cast<size_t>(node.next)].kind == NodeKind::End;
      waiting_.push_back({node.start, last ? stack : push(node.next, kReturn, stack)});
      return;
    }
    case NodeKind::Repeat:
      if (node.least == 0) waiting_.push_back({node.next, stack});
      waiting_.push_back({node.start, push(index, 0, stack)});
      return;
    case NodeKind::End:
      return leave(stack);
  }
}

void Pushdown::leave(int32_t stack) {
  const StackSet set = stacks_[static_cast<size_t>(stack)];
  accepting_ = accepting_ || set.bottom;
  for (size_t i = set.first; i < set.first + set.size; ++i) {
    const Frame frame = frames_[i];
    const ProgramNode& node = program_.nodes[static_cast<size_t>(frame.node)];
    if (frame.count == kReturn) {
      waiting_.push_back({frame.node, frame.below});
      continue;
    }
    const int32_t count = frame.count + 1;
    if (count >= node.least) waiting_.push_back({node.next, frame.below});
    if (count < node.most) waiting_.push_back({node.start, push(frame.node, count, frame.below)});
  }
}

int32_t Pushdown::push(int32_t node, int32_t count, int32_t below) {
  const Frame frame{node, count, below};
  return intern_stack({&frame, 1}, false);
}

int32_t Pushdown::intern_stack(std::span<const Frame> frames, bool bottom) {
  uint64_t hash = bottom;
  for (const Frame& frame : frames) {
    hash = mix(hash, static_cast<uint64_t>(frame.node) << 32 | static_cast<uint32_t>(frame.count));
    hash = mix(hash, static_cast<uint64_t>(frame.below));
  }
  const int32_t known = stack_index_.find(hash, [&](int32_t one) {
    const StackSet& set = stacks_[static_cast<size_t>(one)];
    const auto first = frames_.begin() + static_cast<ptrdiff_t>(set.first);
    return set.bottom == bottom && set.size == frames.size() && std::equal(frames.begin(), frames.end(), first);
  });
  if (known != InternIndex::kNone) return known;
  spend(4);
  const auto stack = static_cast<int32_t>(stacks_.size());
  stacks_.push_back({frames_.size(), frames.size(), bottom});
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  stack_index_.add(hash, stack);
  return stack;
}

// The union of two sets of stacks; for common frames, the sets below are united recursively.
int32_t Pushdown::unite(int32_t a, int32_t b, int depth) {
  if (a == b) return a;
  if (depth > kDeepestUnion) throw TooComplex();
  if (a > b) std::swap(a, b);
  const uint64_t key = static_cast<uint64_t>(a) << 32 | static_cast<uint32_t>(b);
  if (const auto known = united_.find(key); known != united_.end()) return known->second;
  const StackSet left = stacks_[static_cast<size_t>(a)], right = stacks_[static_cast<size_t>(b)];
  spend(static_cast<int64_t>(left.size + right.size));
  const auto order = [](const Frame& f) { return std::pair(f.node, f.count); };
  std::vector<Frame> frames;
  size_t i = left.first, j = right.first;
  while (i < left.first + left.size || j < right.first + right.size) {
    const bool has_left = i < left.first + left.size, has_right = j < right.first + right.size;
    if (!has_right || (has_left && order(frames_[i]) < order(frames_[j]))) {
      frames.push_back(frames_[i++]);
    } else if (!has_left || order(frames_[j]) < order(frames_[i])) {
      frames.push_back(frames_[j++]);
    } else {
      const Frame one = frames_[i++], other = frames_[j++];
      frames.push_back({one.node, one.count, unite(one.below, other.below, depth + 1)});
    }
  }
  const int32_t both = intern_stack(frames, left.bottom || right.bottom);
  united_.emplace(key, both);
  return both;
}

}  // namespace millrace
