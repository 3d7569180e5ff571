#include "grammar/automaton/grammar_program.h"

#include <algorithm>
#include <string>
#include <utility>

#include "grammar/automaton/left_recursion.h"
#include "grammar/automaton/program_builder.h"
#include "grammar/automaton/set_unions.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

using NodeKind = ProgramNode::Kind;

// The UTF-8 encodings of a range of characters: a range of values for each byte.
using ByteRanges = std::vector<std::pair<uint8_t, uint8_t>>;

void add_utf8_ranges(uint32_t first, uint32_t last, std::vector<ByteRanges>& out) {
  constexpr uint32_t kLengths[] = {0x7F, 0x7FF, 0xFFFF};  // last character of each encoded length
  for (const uint32_t bound : kLengths) {
    if (first <= bound && last > bound) {
      add_utf8_ranges(first, bound, out);
      return add_utf8_ranges(bound + 1, last, out);
    }
  }
  // Splits the range so that all bytes behind the first differing one take all their values.
  for (int shift = 6; first > 0x7F && shift <= 18; shift += 6) {
    const uint32_t low = (1u << shift) - 1;
    if ((first & ~low) == (last & ~low)) break;
    if ((first & low) != 0) {
      add_utf8_ranges(first, first | low, out);
      return add_utf8_ranges((first | low) + 1, last, out);
    }
    if ((last & low) != low) {
      add_utf8_ranges(first, (last & ~low) - 1, out);
      return add_utf8_ranges(last & ~low, last, out);
    }
  }
  const std::string from = to_utf8(first), to = to_utf8(last);
  ByteRanges ranges;
  for (size_t i = 0; i < from.size(); ++i)
    ranges.emplace_back(static_cast<uint8_t>(from[i]), static_cast<uint8_t>(to[i]));
  out.push_back(std::move(ranges));
}

class ProgramWriter : ProgramBuilder {
 public:
  GrammarProgram write(const GrammarRules& rules) {
    end_ = add({.kind = NodeKind::End});
    std::vector<int32_t> starts;
    for (const GrammarNode& body : rules.bodies) starts.push_back(emit(body, end_));
    for (ProgramNode& node : program_.nodes) {
      if (node.kind == NodeKind::Call) node.start = starts[static_cast<size_t>(node.start)];
    }
    program_.start = starts[rules.root];
    for (CodeSet& set : united_first_sets(rules)) add_set(set);
    sort_bytes();
    return std::move(program_);
  }

  GrammarProgram write(const CodeSet& set) {
    end_ = add({.kind = NodeKind::End});
    program_.start = emit_set(set, end_);
    sort_bytes();
    return std::move(program_);
  }

 private:
  int32_t add_bytes(const std::vector<ByteEdge>& edges) {
    const auto first = static_cast<int32_t>(program_.edges.size());
    program_.edges.insert(program_.edges.end(), edges.begin(), edges.end());
    return add({.kind = NodeKind::Bytes, .first = first, .count = static_cast<int32_t>(edges.size())});
  }

  // Emits the node; it continues at `next`.
  int32_t emit(const GrammarNode& node, int32_t next) {
    switch (node.kind) {
      case GrammarNode::Kind::Literal:
        return emit_literals({node.literal}, 0, next);
      case GrammarNode::Kind::Set:
        return emit_set(node.set, next);
      case GrammarNode::Kind::Rule:
        return add({.kind = NodeKind::Call, .start = static_cast<int32_t>(node.rule), .next = next});
      case GrammarNode::Kind::Sequence:
        for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part) next = emit(*part, next);
        return next;
      case GrammarNode::Kind::Choice:
        return emit_choice(node, next);
      case GrammarNode::Kind::Repeat:
        return emit_repeat(node, next);
    }
    return next;
  }

  // Literals are merged into a trie: an enum of a thousand words then has one live state instead of a thousand.
  int32_t emit_choice(const GrammarNode& node, int32_t next) {
    std::vector<std::string_view> literals;
    std::vector<int32_t> targets;
    for (const GrammarNode& part : node.parts) {
      if (part.kind == GrammarNode::Kind::Literal) {
        literals.push_back(part.literal);
      } else {
        targets.push_back(emit(part, next));
      }
    }
    std::sort(literals.begin(), literals.end());
    literals.erase(std::unique(literals.begin(), literals.end()), literals.end());
    if (!literals.empty()) targets.push_back(emit_literals(literals, 0, next));
    return targets.size() == 1 ? targets.front() : add_split(targets);
  }

  // `literals` are sorted and begin with the same `depth` bytes.
  int32_t emit_literals(const std::vector<std::string_view>& literals, size_t depth, int32_t next) {
    // A single literal is a chain, emitted from its end. Recursion is as deep as the common prefixes of literals.
    if (literals.size() == 1) {
      for (size_t i = literals[0].size(); i > depth; --i) {
        const auto byte = static_cast<uint8_t>(literals[0][i - 1]);
        next = add_bytes({{byte, byte, next}});
      }
      return next;
    }
    size_t shared = depth;
    while (shared < literals.front().size() && shared < literals.back().size() &&
           literals.front()[shared] == literals.back()[shared])
      ++shared;
    std::vector<ByteEdge> edges;
    const bool ends = literals.front().size() == shared;
    for (size_t i = ends ? 1 : 0; i < literals.size();) {
      std::vector<std::string_view> group;
      const char byte = literals[i][shared];
      for (; i < literals.size() && literals[i][shared] == byte; ++i) group.push_back(literals[i]);
      edges.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), emit_literals(group, shared + 1, next)});
    }
    int32_t node = edges.empty() ? next : add_bytes(edges);
    if (ends && !edges.empty()) node = add_split({next, node});
    return emit_literals({literals.front().substr(0, shared)}, depth, node);
  }

  int32_t emit_repeat(const GrammarNode& node, int32_t next) {
    const GrammarNode& part = node.parts.front();
    if (node.most == 0) return next;
    if (node.least == 1 && node.most == 1) return emit(part, next);
    if (node.least == 0 && node.most == 1) return add_split({emit(part, next), next});
    if (node.most < 0) {
      const int32_t loop = add_split({});
      const int32_t again = emit(part, loop);
      set_targets(loop, {again, next});
      next = loop;
      if (node.least == 0) return next;
      if (node.least == 1) return emit(part, next);
    }
    const auto least = static_cast<int32_t>(node.least);
    const auto most = node.most < 0 ? least : static_cast<int32_t>(node.most);
    const int32_t start = emit(part, end_);
    return add({.kind = NodeKind::Repeat, .start = start, .next = next, .least = least, .most = most});
  }

  void add_set(const CodeSet& set) {
    if (std::find(program_.sets.begin(), program_.sets.end(), set) == program_.sets.end()) program_.sets.push_back(set);
  }

  int32_t emit_set(const CodeSet& set, int32_t next) {
    add_set(set);
    std::vector<ByteRanges> ranges;
    for (const CodeRange& range : set.ranges()) add_utf8_ranges(range.first, range.last, ranges);
    return emit_ranges(ranges, 0, ranges.size(), 0, next);
  }

  // Ranges are sorted and split at byte borders: those with a common first byte range are neighbours.
  int32_t emit_ranges(const std::vector<ByteRanges>& ranges, size_t begin, size_t end, size_t depth, int32_t next) {
    std::vector<ByteEdge> edges;
    for (size_t i = begin; i < end;) {
      size_t same = i;
      while (same < end && ranges[same][depth] == ranges[i][depth]) ++same;
      const bool last = ranges[i].size() == depth + 1;
      const int32_t target = last ? next : emit_ranges(ranges, i, same, depth + 1, next);
      edges.push_back({ranges[i][depth].first, ranges[i][depth].second, target});
      i = same;
    }
    return add_bytes(edges);
  }

  // Bytes between two borders of edges have the same kind.
  void sort_bytes() {
    std::array<bool, 257> begins{};
    for (const ByteEdge& edge : program_.edges) begins[edge.from] = begins[edge.to + 1u] = true;
    uint8_t kind = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      if (byte > 0 && begins[byte]) ++kind;
      program_.kind_of_byte[byte] = kind;
    }
    program_.byte_kinds = kind + 1;
  }

  int32_t end_ = 0;
};

}  // namespace

GrammarProgram compile_program(const GrammarRules& rules) {
  GrammarProgram program = ProgramWriter().write(rules);
  return left_recursive(program) ? without_left_recursion(program) : program;
}

GrammarProgram compile_set(const CodeSet& set) { return ProgramWriter().write(set); }

}  // namespace millrace
