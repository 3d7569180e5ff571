#include <algorithm>
#include <optional>

#include "base/error.h"
#include "text/regex/program.h"

namespace millrace {
namespace {

using Kind = RegexNode::Kind;
using Op = RegexProgram::Op;
using Bytes = RegexProgram::Bytes;

constexpr size_t kLargestProgram = 5000;  // instructions; real tokenizers have tens
constexpr size_t kMostSets = 500;
constexpr int kLongestBehind = 1000;

Bytes lead_bytes(const CodeSet& set) {
  Bytes bytes;
  for (uint32_t c = 0; c < 0x80; ++c) bytes[c] = set.contains(c);
  for (uint32_t lead = 0xC2; lead < 0xE0; ++lead) {
    bytes[lead] = set.overlaps((lead & 0x1F) << 6, ((lead & 0x1F) << 6) + 0x3F);
  }
  for (uint32_t lead = 0xE0; lead < 0xF0; ++lead) {
    bytes[lead] = set.overlaps((lead & 0x0F) << 12, ((lead & 0x0F) << 12) + 0xFFF);
  }
  for (uint32_t lead = 0xF0; lead < 0xF5; ++lead) {
    bytes[lead] = set.overlaps((lead & 0x07) << 18, ((lead & 0x07) << 18) + 0x3FFFF);
  }
  return bytes;
}

// First bytes of non-empty matches of the node.
Bytes first_bytes(const RegexNode& node) {
  Bytes bytes;
  switch (node.kind) {
    case Kind::Set:
      return lead_bytes(node.set);
    case Kind::Sequence:
      for (const RegexNode& child : node.children) {
        bytes |= first_bytes(child);
        if (!child.can_be_empty()) break;
      }
      return bytes;
    case Kind::Alternatives:
    case Kind::Repeat:
    case Kind::Atomic:
      for (const RegexNode& child : node.children) bytes |= first_bytes(child);
      return bytes;
    case Kind::Look:
    case Kind::Anchor:
      return bytes;
  }
  return bytes;
}

// The number of characters of all matches; nullopt: it varies.
std::optional<int> fixed_length(const RegexNode& node) {
  switch (node.kind) {
    case Kind::Set:
      return 1;
    case Kind::Look:
    case Kind::Anchor:
      return 0;
    case Kind::Sequence: {
      int sum = 0;
      for (const RegexNode& child : node.children) {
        const auto length = fixed_length(child);
        if (!length) return std::nullopt;
        sum += *length;
      }
      return sum;
    }
    case Kind::Alternatives: {
      const auto length = fixed_length(node.children[0]);
      const bool same = std::all_of(node.children.begin(), node.children.end(),
                                    [&](const RegexNode& child) { return fixed_length(child) == length; });
      return same ? length : std::nullopt;
    }
    case Kind::Repeat: {
      const auto length = fixed_length(node.children[0]);
      const bool fixed = length && node.min == node.max && *length < kLongestBehind;
      return fixed ? std::optional(*length * static_cast<int>(node.min)) : std::nullopt;
    }
    case Kind::Atomic:
      return fixed_length(node.children[0]);
  }
  return std::nullopt;
}

class Compiler {
 public:
  explicit Compiler(std::string_view pattern) : pattern_(pattern) {}

  RegexProgram compile() {
    const RegexNode tree = parse_regex(pattern_, RegexDialect::Oniguruma);
    program_.can_be_empty = tree.can_be_empty();
    program_.first_bytes = first_bytes(tree);
    emit_node(tree);
    emit({Op::Match});
    return std::move(program_);
  }

 private:
  using Instruction = RegexProgram::Instruction;

  uint32_t here() const { return static_cast<uint32_t>(program_.code.size()); }

  uint32_t emit(Instruction instruction) {
    if (program_.code.size() >= kLargestProgram) refuse("is too large");
    program_.code.push_back(instruction);
    return here() - 1;
  }

  uint32_t emit_choice(Instruction instruction) {
    instruction.state = static_cast<int32_t>(program_.inner_states.size());
    // The end of a possessive loop is memoized outside of lookarounds too.
    program_.inner_states.push_back(inner_ > 0 || instruction.op == Op::PossessiveLoop);
    return emit(instruction);
  }

  [[noreturn]] void refuse(const char* why) const {
    fail(ErrorKind::Unsupported, "the regex '{}' {}", pattern_.substr(0, 200), why);
  }

  uint32_t set_index(const CodeSet& set) {
    const auto found = std::find(sets_.begin(), sets_.end(), set);
    if (found != sets_.end()) return static_cast<uint32_t>(found - sets_.begin());
    if (sets_.size() == kMostSets) refuse("is too large");
    sets_.push_back(set);
    program_.sets.emplace_back(set);
    return static_cast<uint32_t>(sets_.size() - 1);
  }

  void emit_node(const RegexNode& node) {
    switch (node.kind) {
      case Kind::Set:
        emit({.op = Op::Set, .a = set_index(node.set)});
        return;
      case Kind::Sequence:
        for (const RegexNode& child : node.children) emit_node(child);
        return;
      case Kind::Alternatives:
        return emit_alternatives(node);
      case Kind::Repeat:
        return node.children[0].kind == Kind::Set && !node.lazy ? emit_set_loop(node, Op::Loop) : emit_repeat(node);
      case Kind::Atomic:
        return emit_atomic(node);
      case Kind::Look:
        return node.behind ? emit_look_behind(node) : emit_look(node);
      case Kind::Anchor:
        emit({.op = Op::Anchor, .anchor = node.anchor});
        return;
    }
  }

  void emit_alternatives(const RegexNode& node) {
    std::vector<uint32_t> exits;
    for (size_t i = 0; i < node.children.size(); ++i) {
      const RegexNode& child = node.children[i];
      if (i + 1 == node.children.size()) {
        emit_node(child);
        break;
      }
      const uint32_t split = emit_split(child);
      emit_node(child);
      exits.push_back(emit({Op::Jump}));
      program_.code[split].b = here();
    }
    for (const uint32_t exit : exits) program_.code[exit].a = here();
  }

  // A choice whose first branch is the following code, which matches `first`; the caller sets the second branch.
  uint32_t emit_split(const RegexNode& first) {
    const uint32_t split = emit_choice({.op = Op::Split, .a = here() + 1});
    if (!first.can_be_empty()) {
      program_.code[split].guard = static_cast<int32_t>(program_.guards.size());
      program_.guards.push_back(first_bytes(first));
    }
    return split;
  }

  void emit_set_loop(const RegexNode& node, Op unbounded) {
    const uint32_t set = set_index(node.children[0].set);
    const auto count = [](int64_t n) { return static_cast<int16_t>(n); };
    if (node.max != RegexNode::kUnbounded) {
      emit_choice({.op = Op::BoundedLoop, .min = count(node.min), .max = count(node.max), .a = set});
      return;
    }
    if (node.min == 1) emit({.op = Op::Set, .a = set});
    if (node.min > 1) emit_choice({.op = Op::BoundedLoop, .min = count(node.min), .max = count(node.min), .a = set});
    emit_choice({.op = unbounded, .a = set});
  }

  void emit_repeat(const RegexNode& node) {
    const RegexNode& body = node.children[0];
    for (int64_t i = 0; i < node.min; ++i) emit_node(body);
    if (node.max == RegexNode::kUnbounded) {
      const uint32_t split = emit_loop_split(node);
      emit_node(body);
      emit({.op = Op::Jump, .a = split});
      set_exit(split, node.lazy);
      return;
    }
    std::vector<uint32_t> splits;
    for (int64_t i = node.min; i < node.max; ++i) {
      splits.push_back(emit_loop_split(node));
      emit_node(body);
    }
    for (const uint32_t split : splits) set_exit(split, node.lazy);
  }

  uint32_t emit_loop_split(const RegexNode& node) {
    if (!node.lazy) return emit_split(node.children[0]);
    return emit_choice({.op = Op::Split, .b = here() + 1});
  }

  void set_exit(uint32_t split, bool lazy) { (lazy ? program_.code[split].a : program_.code[split].b) = here(); }

  void emit_atomic(const RegexNode& node) {
    const RegexNode& body = node.children[0];
    if (body.kind == Kind::Repeat && body.children[0].kind == Kind::Set && !body.lazy &&
        body.max == RegexNode::kUnbounded) {
      return emit_set_loop(body, Op::PossessiveLoop);
    }
    emit_inner({.op = Op::Atomic}, body);
  }

  void emit_look(const RegexNode& node) { emit_inner({.op = Op::Look, .negative = node.negative}, node.children[0]); }

  void emit_inner(Instruction instruction, const RegexNode& body) {
    instruction.a = here() + 1;
    const uint32_t index = emit(instruction);
    emit_body(body);
    program_.code[index].b = here();
  }

  void emit_body(const RegexNode& body) {
    ++inner_;
    emit_node(body);
    emit({Op::Match});
    --inner_;
  }

  void emit_look_behind(const RegexNode& node) {
    const RegexNode& body = node.children[0];
    const auto alternatives = body.kind == Kind::Alternatives ? std::span(body.children) : std::span(&body, 1);
    const uint32_t index =
        emit({.op = Op::LookBehind, .negative = node.negative, .a = static_cast<uint32_t>(program_.behinds.size())});
    program_.behinds.emplace_back();
    const size_t slot = program_.behinds.size() - 1;
    for (const RegexNode& alternative : alternatives) {
      const auto length = fixed_length(alternative);
      if (!length) refuse("has a lookbehind without a fixed length");
      program_.behinds[slot].push_back({*length, here()});
      emit_body(alternative);
    }
    program_.code[index].b = here();
  }

  std::string_view pattern_;
  RegexProgram program_;
  std::vector<CodeSet> sets_;  // the sets of program_.sets, as ranges
  int inner_ = 0;
};

}  // namespace

RegexProgram compile_regex(std::string_view pattern) { return Compiler(pattern).compile(); }

}  // namespace millrace
