// Base of the classes that emit programs: adds nodes within size limits.
#pragma once

#include <utility>
#include <vector>

#include "base/error.h"
#include "grammar/automaton/grammar_program.h"

namespace millrace {

class ProgramBuilder {
 protected:
  ProgramBuilder() = default;
  explicit ProgramBuilder(GrammarProgram program) : program_(std::move(program)) {}

  ProgramNode& at(int32_t node) { return program_.nodes[static_cast<size_t>(node)]; }

  int32_t add(ProgramNode node) {
    if (program_.nodes.size() >= kMostNodes) too_large();
    program_.nodes.push_back(node);
    return static_cast<int32_t>(program_.nodes.size()) - 1;
  }

  void set_targets(int32_t node, const std::vector<int32_t>& targets) {
    if (program_.targets.size() + targets.size() > kMostTargets) too_large();
    at(node) = {.kind = ProgramNode::Kind::Split,
                .first = static_cast<int32_t>(program_.targets.size()),
                .count = static_cast<int32_t>(targets.size())};
    program_.targets.insert(program_.targets.end(), targets.begin(), targets.end());
  }

  int32_t add_split(const std::vector<int32_t>& targets) {
    const int32_t node = add({});
    set_targets(node, targets);
    return node;
  }

  GrammarProgram program_;

 private:
  static constexpr size_t kMostNodes = 400000, kMostTargets = 10 * kMostNodes;

  [[noreturn]] static void too_large() {
    fail(ErrorKind::Usage, "the grammar is too large: it has more than {} parts", kMostNodes);
  }
};

}  // namespace millrace
