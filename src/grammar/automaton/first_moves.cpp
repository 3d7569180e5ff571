#include "grammar/automaton/first_moves.h"

#include <algorithm>

namespace millrace {

FirstMoves::FirstMoves(const GrammarProgram& program) : program_(program), nullable_(program.nodes.size()) {
  find_nullable();
}

// Propagates backwards from the End nodes.
void FirstMoves::find_nullable() {
  std::vector<std::vector<int32_t>> users(program_.nodes.size());
  std::vector<int32_t> work;
  for (size_t i = 0; i < program_.nodes.size(); ++i) {
    const ProgramNode& node = program_.nodes[i];
    const auto index = static_cast<int32_t>(i);
    if (node.kind == ProgramNode::Kind::End) work.push_back(index);
    if (node.kind == ProgramNode::Kind::Split) {
      for (int32_t t = 0; t < node.count; ++t)
        users[static_cast<size_t>(program_.targets[static_cast<size_t>(node.first + t)])].push_back(index);
    } else if (node.calls()) {
      users[static_cast<size_t>(node.start)].push_back(index);
      users[static_cast<size_t>(node.next)].push_back(index);
    }
  }
  while (!work.empty()) {
    const auto node = static_cast<size_t>(work.back());
    work.pop_back();
    if (nullable_[node]) continue;
    nullable_[node] = true;
    for (const int32_t user : users[node]) {
      const ProgramNode& by = program_.nodes[static_cast<size_t>(user)];
      if (!by.calls() || (nullable(by.next) && skips(by))) work.push_back(user);
    }
  }
}

// Tarjan's algorithm with an explicit stack.
std::vector<int32_t> FirstMoves::components() const {
  const size_t size = program_.nodes.size();
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
    moves(static_cast<int32_t>(node), [&](Move move) { path.back().rest.push_back(static_cast<size_t>(move.to)); });
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

}  // namespace millrace
