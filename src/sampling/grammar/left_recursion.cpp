#include "sampling/grammar/left_recursion.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

using NodeKind = ProgramNode::Kind;

class FirstMoves {
 public:
  explicit FirstMoves(const GrammarProgram& program) : program_(program), nullable_(program.nodes.size()) {
    find_nullable();
  }

  struct Move {
    size_t to;
    bool call;
  };
  // Where a node can go without a byte; what a call returns to counts where it may take none.
  template <class Visit>
  void moves(size_t from, Visit visit) const {
    const ProgramNode& node = program_.nodes[from];
    const auto at = [](int32_t index) { return static_cast<size_t>(index); };
    if (node.kind == NodeKind::Split) {
      for (int32_t i = 0; i < node.count; ++i) visit(Move{at(program_.targets[at(node.first + i)]), false});
    } else if (node.kind == NodeKind::Call || node.kind == NodeKind::Repeat) {
      visit(Move{at(node.start), true});
      if (skips(node)) visit(Move{at(node.next), false});
    }
  }

 private:
  bool skips(const ProgramNode& node) const {
    return nullable_[static_cast<size_t>(node.start)] || (node.kind == NodeKind::Repeat && node.least == 0);
  }

  // Which nodes can come to the end of their rule without a byte: from the ends backwards.
  void find_nullable() {
    std::vector<std::vector<size_t>> users(program_.nodes.size());
    std::vector<size_t> work;
    for (size_t i = 0; i < program_.nodes.size(); ++i) {
      const ProgramNode& node = program_.nodes[i];
      if (node.kind == NodeKind::End) work.push_back(i);
      if (node.kind == NodeKind::Split) {
        for (int32_t t = 0; t < node.count; ++t)
          users[static_cast<size_t>(program_.targets[static_cast<size_t>(node.first + t)])].push_back(i);
      } else if (node.kind == NodeKind::Call || node.kind == NodeKind::Repeat) {
        users[static_cast<size_t>(node.start)].push_back(i);
        users[static_cast<size_t>(node.next)].push_back(i);
      }
    }
    while (!work.empty()) {
      const size_t node = work.back();
      work.pop_back();
      if (nullable_[node]) continue;
      nullable_[node] = true;
      for (const size_t user : users[node]) {
        const ProgramNode& by = program_.nodes[user];
        if (by.kind == NodeKind::Split || (nullable_[static_cast<size_t>(by.next)] && skips(by))) work.push_back(user);
      }
    }
  }

  const GrammarProgram& program_;
  std::vector<bool> nullable_;
};

// Tarjan's strongly connected components, without recursion: the component of each node.
std::vector<int32_t> components(const FirstMoves& graph, size_t size) {
  std::vector<int32_t> order(size, -1), low(size), component(size, -1);
  std::vector<size_t> open;
  struct Frame {
    size_t node;
    std::vector<size_t> rest;
  };
  std::vector<Frame> path;
  int32_t next = 0, found = 0;
  const auto enter = [&](size_t node) {
    order[node] = low[node] = next++;
    open.push_back(node);
    path.push_back({node, {}});
    graph.moves(node, [&](FirstMoves::Move move) { path.back().rest.push_back(move.to); });
  };
  for (size_t root = 0; root < size; ++root) {
    if (order[root] >= 0) continue;
    enter(root);
    while (!path.empty()) {
      Frame& frame = path.back();
      if (!frame.rest.empty()) {
        const size_t to = frame.rest.back();
        frame.rest.pop_back();
        if (order[to] < 0) {
          enter(to);
        } else if (component[to] < 0) {
          low[frame.node] = std::min(low[frame.node], order[to]);
        }
        continue;
      }
      const size_t node = frame.node;
      path.pop_back();
      if (!path.empty()) low[path.back().node] = std::min(low[path.back().node], low[node]);
      if (low[node] != order[node]) continue;
      for (size_t member = size; member != node;) {
        member = open.back();
        open.pop_back();
        component[member] = found;
      }
      ++found;
    }
  }
  return component;
}

void unroll_rule(EbnfNode& body, size_t rule) {
  const auto calls_itself = [rule](const EbnfNode& node) {
    return node.kind == EbnfNode::Kind::Rule && node.rule == rule;
  };
  EbnfNode first{.kind = EbnfNode::Kind::Choice}, more{.kind = EbnfNode::Kind::Choice};
  std::vector<EbnfNode> options;
  if (body.kind == EbnfNode::Kind::Choice) {
    options = body.parts;
  } else {
    options.push_back(body);
  }
  for (EbnfNode& option : options) {
    if (option.kind == EbnfNode::Kind::Sequence && calls_itself(option.parts.front())) {
      option.parts.erase(option.parts.begin());
      more.parts.push_back(std::move(option));
    } else if (!calls_itself(option)) {
      first.parts.push_back(std::move(option));
    }
  }
  if (first.parts.empty() || more.parts.empty()) return;
  EbnfNode repeat{.kind = EbnfNode::Kind::Repeat, .least = 0, .most = -1};
  repeat.parts.push_back(std::move(more));
  body = EbnfNode{.kind = EbnfNode::Kind::Sequence};
  body.parts.push_back(std::move(first));
  body.parts.push_back(std::move(repeat));
}

}  // namespace

void unroll_left_recursion(EbnfRules& rules) {
  for (size_t rule = 0; rule < rules.bodies.size(); ++rule) unroll_rule(rules.bodies[rule], rule);
}

bool left_recursive(const GrammarProgram& program) {
  const FirstMoves graph(program);
  const std::vector<int32_t> component = components(graph, program.nodes.size());
  bool found = false;
  for (size_t node = 0; node < program.nodes.size(); ++node) {
    graph.moves(node, [&](FirstMoves::Move move) { found |= move.call && component[move.to] == component[node]; });
  }
  return found;
}

}  // namespace millrace
