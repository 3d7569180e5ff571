// A grammar as a tree of rules, and the builder that schemas and regular expressions write them with. The builder
// bounds the size of a grammar, so that no schema makes one that compiles for minutes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/unicode/code_set.h"

namespace millrace {

struct GrammarNode {
  enum class Kind : uint8_t { Literal, Set, Rule, Sequence, Choice, Repeat };
  Kind kind = Kind::Sequence;
  std::string literal;          // of Literal: UTF-8 bytes
  CodeSet set;                  // of Set: one of these characters
  size_t rule = 0;              // of Rule: an index into GrammarRules::bodies
  int64_t least = 0, most = 0;  // of Repeat; most < 0: unbounded
  std::vector<GrammarNode> parts;
};

struct GrammarRules {
  std::vector<GrammarNode> bodies;
  size_t root = 0;
};

// Constructors of nodes. Sequences inside of sequences and choices inside of choices are flattened.
namespace node {

GrammarNode literal(std::string_view text);
GrammarNode one_of(CodeSet characters);
GrammarNode repeat(GrammarNode part, int64_t least, int64_t most);  // most < 0: unbounded
inline GrammarNode maybe(GrammarNode part) { return repeat(std::move(part), 0, 1); }
inline GrammarNode any_number(GrammarNode part) { return repeat(std::move(part), 0, -1); }
inline GrammarNode empty() { return literal(""); }

GrammarNode sequence_of(std::vector<GrammarNode> parts);
std::optional<GrammarNode> choice_of(std::vector<GrammarNode> ways);  // nullopt: there are no ways

inline GrammarNode as_node(GrammarNode part) { return part; }
inline GrammarNode as_node(std::string_view text) { return literal(text); }

// The arguments are nodes, or texts for literals.
template <class... Parts>
GrammarNode sequence(Parts&&... parts) {
  std::vector<GrammarNode> all;
  all.reserve(sizeof...(parts));
  (all.push_back(as_node(std::forward<Parts>(parts))), ...);
  return sequence_of(std::move(all));
}
template <class... Ways>
GrammarNode choice(Ways&&... ways) {
  std::vector<GrammarNode> all;
  all.reserve(sizeof...(ways));
  (all.push_back(as_node(std::forward<Ways>(ways))), ...);
  return *choice_of(std::move(all));
}

}  // namespace node

// About how many bytes the node takes as EBNF: the unit in which a grammar's size is bounded.
size_t written_size(const GrammarNode& node);

class RuleBuilder {
 public:
  static constexpr size_t kMostBytes = 256 << 10;

  // Defines a rule and returns a reference to it. Throws Usage where the grammar grows beyond its bound.
  GrammarNode add(GrammarNode body);
  // A reference to a rule that define() completes later: for recursion.
  GrammarNode reserve();
  void define(const GrammarNode& rule, GrammarNode body);
  // Counts work that makes no rule against the same bound.
  void spend(size_t bytes);

  GrammarRules finish(GrammarNode root) &&;

 private:
  GrammarRules rules_;
  size_t spent_ = 0;
};

// The code points of a text. Throws Usage where it is not valid UTF-8.
std::vector<uint32_t> code_points(std::string_view text);

}  // namespace millrace
