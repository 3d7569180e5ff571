#include "engine/tree_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace millrace {

TreeSearch::TreeSearch(const SearchOptions& options) : options_(options), nodes_(1) {
  SearchOptions& o = options_;
  if (o.budget < 1 || o.width < 1 || o.segment < 1 || o.parallel < 1 || o.beam < 1 || o.longest < 0)
    fail(ErrorKind::Usage, "a search needs a budget, a width, a segment and a beam of at least 1");
  constexpr int64_t kLongest = INT32_MAX;
  if (o.longest == 0) o.longest = static_cast<int32_t>(std::min(o.budget, kLongest));
  o.segment = std::min(o.segment, o.longest);
}

std::vector<size_t> TreeSearch::open_nodes() const {
  std::vector<size_t> open;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].open) open.push_back(i);
  }
  return open;
}

// A child's value is about its parent's, give or take the spread of the values seen so far. Every earlier expansion of
// the node, and every token spent elsewhere, makes a pleasant surprise less likely: with the last tokens only the value
// counts.
double TreeSearch::expected_gain(const Node& node) const {
  const double count = std::max<double>(1, static_cast<double>(drawn_));
  const double spread = std::sqrt(std::max(0.0, squares_ / count - (sum_ / count) * (sum_ / count)));
  const double left = 1 - static_cast<double>(spent_) / static_cast<double>(options_.budget);
  return node.value + spread * std::sqrt(left / (1.0 + node.expansions));
}

std::vector<TreeSearch::Expansion> TreeSearch::next_round() {
  const int64_t left = options_.budget - spent_;
  std::vector<size_t> open = open_nodes();
  if (left <= 0 || open.empty()) return {};
  std::stable_sort(open.begin(), open.end(),
                   [&](size_t a, size_t b) { return expected_gain(nodes_[a]) > expected_gain(nodes_[b]); });
  // Until there is an answer, the tokens that complete one are kept back.
  const int64_t for_exploring = has_answer_ ? left : left - options_.longest;
  const int64_t cost = int64_t{options_.width} * options_.segment;
  const int64_t affordable = std::max<int64_t>(0, for_exploring / cost);
  const auto count =
      static_cast<size_t>(std::min<int64_t>({affordable, options_.parallel, static_cast<int64_t>(open.size())}));
  std::vector<Expansion> round;
  for (size_t i = 0; i < count; ++i)
    round.push_back({open[i], options_.width, std::min(options_.segment, room(nodes_[open[i]]))});
  if (round.empty()) {  // one child of the best node, to its end
    const auto best = *std::max_element(open.begin(), open.end(),
                                        [&](size_t a, size_t b) { return nodes_[a].value < nodes_[b].value; });
    round.push_back({best, 1, static_cast<int32_t>(std::min<int64_t>(left, room(nodes_[best])))});
  }
  return round;
}

void TreeSearch::take(const Expansion& expansion, std::vector<Child> children) {
  ++expansions_;
  ++nodes_[expansion.node].expansions;
  for (Child& child : children) {
    spent_ += child.spent;
    ++drawn_;
    sum_ += child.value;
    squares_ += child.value * child.value;
    const Node& parent = nodes_[expansion.node];
    Node node{.tokens = parent.tokens, .value = child.value, .logprob = parent.logprob + child.logprob};
    node.tokens.insert(node.tokens.end(), child.tokens.begin(), child.tokens.end());
    node.stopped = child.ended;
    node.ended = child.ended || room(node) <= 0;
    node.open = !node.ended;
    has_answer_ = has_answer_ || node.ended;
    nodes_.push_back(std::move(node));
  }
  nodes_[0].value = sum_ / static_cast<double>(std::max<int64_t>(1, drawn_));  // what another beginning promises
  prune();
}

void TreeSearch::prune() {
  std::vector<size_t> open = open_nodes();
  std::erase(open, size_t{0});  // the prompt itself is always kept
  if (std::ssize(open) <= options_.beam) return;
  std::stable_sort(open.begin(), open.end(),
                   [&](size_t a, size_t b) { return expected_gain(nodes_[a]) > expected_gain(nodes_[b]); });
  for (size_t i = static_cast<size_t>(options_.beam); i < open.size(); ++i) {
    nodes_[open[i]].open = false;
    nodes_[open[i]].tokens = {};
    ++pruned_;
  }
}

std::vector<size_t> TreeSearch::answers() const {
  std::vector<size_t> found;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (has_answer_ ? nodes_[i].ended : nodes_[i].open && i > 0) found.push_back(i);
  }
  std::stable_sort(found.begin(), found.end(), [&](size_t a, size_t b) { return nodes_[a].value > nodes_[b].value; });
  return found;
}

}  // namespace millrace
