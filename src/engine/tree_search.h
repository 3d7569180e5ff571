// Searches the tree of continuations of a prompt under a hard budget of generated tokens. A node is the beginning of an
// answer. Expanding it draws several children, each a segment longer. The caller generates the children and gives them
// values; the search decides which nodes to expand. Branches share their pages through the prefix tree, and between two
// rounds no sequence is held, so a pruned branch costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

struct SearchOptions {
  int64_t budget = 0;    // generated tokens of all branches together, at most
  int32_t width = 4;     // children per expansion
  int32_t segment = 32;  // tokens of a child, at most
  int32_t longest = 0;   // tokens of an answer, at most; 0: the budget
  int32_t parallel = 4;  // nodes expanded in one round
  int32_t beam = 16;     // open nodes kept; those with the lowest values are pruned
};

class TreeSearch {
 public:
  explicit TreeSearch(const SearchOptions& options);  // throws Error (Usage) for options out of range

  struct Expansion {
    size_t node = 0;
    int32_t children = 0;  // equal for all expansions of a round
    int32_t tokens = 0;    // of each child, at most
  };
  // The expansions of the next round. Empty: the search has ended. take() must follow for each of them.
  std::vector<Expansion> next_round();

  struct Child {
    std::vector<int32_t> tokens;  // without an end token
    int32_t spent = 0;            // generated tokens, with an end token
    double value = 0;             // of the whole answer so far; more is better
    double logprob = 0;           // sum over `tokens`
    bool ended = false;           // the answer is whole
  };
  void take(const Expansion& expansion, std::vector<Child> children);

  std::span<const int32_t> tokens(size_t node) const { return nodes_[node].tokens; }  // from the end of the prompt
  double value(size_t node) const { return nodes_[node].value; }
  double logprob(size_t node) const { return nodes_[node].logprob; }
  bool ended(size_t node) const { return nodes_[node].ended; }
  bool stopped(size_t node) const { return nodes_[node].stopped; }  // false: `longest` or the budget cut it

  // Whole answers, best first. If none became whole within the budget: the best beginnings.
  std::vector<size_t> answers() const;

  int64_t spent() const { return spent_; }
  int64_t expansions() const { return expansions_; }
  int64_t pruned() const { return pruned_; }

 private:
  struct Node {
    std::vector<int32_t> tokens;
    double value = 0, logprob = 0;
    int32_t expansions = 0;
    bool stopped = false, ended = false, open = true;
  };
  int32_t room(const Node& node) const { return options_.longest - static_cast<int32_t>(node.tokens.size()); }
  std::vector<size_t> open_nodes() const;
  double expected_gain(const Node& node) const;
  void prune();

  SearchOptions options_;
  std::vector<Node> nodes_;
  int64_t spent_ = 0, expansions_ = 0, pruned_ = 0, drawn_ = 0;
  double sum_ = 0, squares_ = 0;  // of the values of all children
  bool has_answer_ = false;
};

}  // namespace millrace
