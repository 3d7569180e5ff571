#include "grammar/automaton/left_recursion.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "grammar/automaton/first_moves.h"
#include "grammar/automaton/program_builder.h"

namespace millrace {
namespace {

using NodeKind = ProgramNode::Kind;

// An equivalent program whose calls take at least one byte each; a split bypasses calls that could take none. Left
// recursion is then a cycle of calls alone.
class TakingCalls : ProgramBuilder {
 public:
  explicit TakingCalls(const GrammarProgram& program) : ProgramBuilder(program), old_(program), moves_(program) {}

  GrammarProgram write() {
    const auto size = static_cast<int32_t>(old_.nodes.size());
    // Nodes refer to each other, so all are allocated first.
    for (int32_t i = 0; i < size; ++i) taking_.push_back(stays(i) ? i : add_split({}));
    for (int32_t i = 0; i < size; ++i) {
      if (old(i).kind == NodeKind::Split) write_split(i);
      if (old(i).calls()) write_call(i);
    }
    return std::move(program_);
  }

 private:
  const ProgramNode& old(int32_t node) const { return old_.nodes[static_cast<size_t>(node)]; }
  int32_t taking(int32_t node) const { return taking_[static_cast<size_t>(node)]; }
  bool stays(int32_t node) const {
    return old(node).kind == NodeKind::Bytes || (old(node).calls() && !moves_.skips(old(node)));
  }

  void write_split(int32_t node) {
    std::vector<int32_t> targets;
    for (int32_t i = 0; i < old(node).count; ++i)
      targets.push_back(taking(old_.targets[static_cast<size_t>(old(node).first + i)]));
    set_targets(taking(node), targets);
  }

  void write_call(int32_t node) {
    ProgramNode call = old(node);
    // If the repeated part can be empty, one non-empty repetition suffices: the others can be empty.
    if (moves_.skips(call)) call.least = 1;
    call.start = taking(call.start);
    if (stays(node)) {
      at(node) = call;
      return;
    }
    const int32_t taken = add(call);
    set_targets(node, {taken, call.next});
    set_targets(taking(node), {taken, taking(call.next)});
  }

  const GrammarProgram& old_;
  FirstMoves moves_;
  std::vector<int32_t> taking_;  // by node: its variant without the empty text
};

// Rules that left-call each other form a loop. A call of rule a of the loop becomes: a beginning of some rule b of the
// loop that does not left-call the loop; then, repeatedly, the rest of a rule that left-calls the rule just completed;
// until that rule is a.
class LoopsUnrolled : ProgramBuilder {
 public:
  explicit LoopsUnrolled(GrammarProgram program)
      : ProgramBuilder(std::move(program)), component_(FirstMoves(program_).components()) {
    for (size_t i = 0; i < component_.size(); ++i) {
      const ProgramNode& node = program_.nodes[i];
      if (!node.calls()) continue;
      const int32_t of_start = component(node.start);
      if (of_start == component_[i]) loops_.try_emplace(of_start);
      called_.emplace(of_start, node.start);
    }
    for (auto& [index, loop] : loops_) find_loop(index, loop);
    end_ = add({});
  }

  // Replaces calls of loops in all reachable nodes.
  GrammarProgram write() {
    std::vector<int32_t> work{program_.start};
    std::vector<bool> seen;
    while (!work.empty()) {
      const int32_t index = work.back();
      work.pop_back();
      seen.resize(program_.nodes.size());
      if (seen[static_cast<size_t>(index)]) continue;
      seen[static_cast<size_t>(index)] = true;
      const ProgramNode node = at(index);
      if (node.calls()) {
        const int32_t start = unrolled(node.start);
        at(index).start = start;
        work.insert(work.end(), {start, node.next});
      }
      for (int32_t i = node.first; i < node.first + node.count; ++i) {
        const auto place = static_cast<size_t>(i);
        work.push_back(node.kind == NodeKind::Bytes ? program_.edges[place].next : program_.targets[place]);
      }
    }
    return std::move(program_);
  }

 private:
  struct Beginning {
    int32_t rule, node;  // a non-recursive beginning of the rule
  };
  struct Rest {
    int32_t of, rule, node;  // the rest of `rule` after its left call of `of`
  };
  struct Loop {
    std::vector<int32_t> rules;  // first nodes
    std::vector<Beginning> beginnings;
    std::vector<Rest> rests;
  };

  int32_t component(int32_t node) const { return component_[static_cast<size_t>(node)]; }

  void find_loop(int32_t index, Loop& loop) {
    for (auto called = called_.lower_bound({index, 0}); called != called_.end() && called->first == index; ++called)
      loop.rules.push_back(called->second);
    for (const int32_t rule : loop.rules) {
      std::set<int32_t> seen;
      std::vector<int32_t> work{rule};
      while (!work.empty()) {
        const int32_t place = work.back();
        work.pop_back();
        if (!seen.insert(place).second) continue;
        const ProgramNode node = at(place);
        if (node.kind == NodeKind::Split) {
          for (int32_t i = 0; i < node.count; ++i)
            work.push_back(program_.targets[static_cast<size_t>(node.first + i)]);
        } else if (node.calls() && component(node.start) == index) {
          loop.rests.push_back({node.start, rule, after_one(node)});
        } else {
          loop.beginnings.push_back({rule, place});
        }
      }
    }
  }

  // The rest of a call after one completed repetition.
  int32_t after_one(ProgramNode call) {
    if (call.kind == NodeKind::Call || call.most == 1) return call.next;
    --call.most;
    if (call.least > 1) {
      --call.least;
      return add(call);
    }
    return add_split({add(call), call.next});
  }

  int32_t unrolled(int32_t rule) {
    if (static_cast<size_t>(rule) >= component_.size()) return rule;
    const auto found = loops_.find(component(rule));
    // A rest of a rule may begin with a call into the loop without being a rule of the loop.
    if (found == loops_.end() || !called_.contains({component(rule), rule})) return rule;
    const auto [known, fresh] = unrolled_.try_emplace(rule);
    if (!fresh) return known->second;
    const Loop& loop = found->second;
    std::map<int32_t, int32_t> behind;  // by rule: the node to continue at when the rule is complete
    std::map<int32_t, std::vector<int32_t>> ways;
    for (const int32_t one : loop.rules) behind[one] = add({});
    for (const Rest& rest : loop.rests) {
      const bool nothing = at(rest.node).kind == NodeKind::End;
      ways[rest.of].push_back(nothing ? behind[rest.rule] : add_call(rest.node, behind[rest.rule]));
    }
    ways[rule].push_back(end_);
    for (const int32_t one : loop.rules) set_targets(behind[one], ways[one]);
    std::vector<int32_t> first;
    for (const Beginning& beginning : loop.beginnings)
      first.push_back(add_call(beginning.node, behind[beginning.rule]));
    return known->second = add_split(first);
  }

  int32_t add_call(int32_t start, int32_t next) { return add({.kind = NodeKind::Call, .start = start, .next = next}); }

  std::vector<int32_t> component_;                // of the original nodes
  std::set<std::pair<int32_t, int32_t>> called_;  // (component, called rule)
  std::map<int32_t, Loop> loops_;                 // by component
  std::map<int32_t, int32_t> unrolled_;           // by rule: its replacement
  int32_t end_ = 0;
};

}  // namespace

bool left_recursive(const GrammarProgram& program) {
  const FirstMoves graph(program);
  const std::vector<int32_t> component = graph.components();
  const auto of = [&](int32_t node) { return component[static_cast<size_t>(node)]; };
  bool found = false;
  for (int32_t node = 0; node < static_cast<int32_t>(program.nodes.size()); ++node) {
    graph.moves(node, [&](FirstMoves::Move move) { found |= move.call && of(move.to) == of(node); });
  }
  return found;
}

GrammarProgram without_left_recursion(const GrammarProgram& program) {
  return LoopsUnrolled(TakingCalls(program).write()).write();
}

}  // namespace millrace
