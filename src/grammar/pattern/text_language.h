// Languages of texts, built from characters by sequence, choice, repetition, intersection and complement. The
// continuations after a character (Brzozowski's derivative) are such a language again, which gives an automaton for any
// of them (text_automaton.h).
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "grammar/rules.h"

namespace millrace {

class TextLanguages {
 public:
  using Id = int32_t;  // equal ids mean equal languages, not the reverse

  // The work counts against the builder's bound.
  explicit TextLanguages(RuleBuilder& builder);

  static constexpr Id kNothing = 0;   // no text
  static constexpr Id kEmpty = 1;     // the empty text only
  static constexpr Id kAnything = 2;  // every text

  Id one_of(const CodeSet& characters);
  Id sequence(Id first, Id rest);
  Id either(std::vector<Id> ids);
  Id both(std::vector<Id> ids);
  Id inverse(Id id);
  Id repeat(Id id, int64_t least, int64_t most);  // most -1: unbounded
  Id text(std::string_view text);

  bool has_empty(Id id) const { return at(id).has_empty; }
  Id after(Id id, uint32_t code);
  bool has(Id id, std::string_view text);

  // Classes of characters that no part of the language tells apart.
  std::vector<CodeSet> classes(Id id) const;

 private:
  enum class Kind : uint8_t { Nothing, Empty, Set, Sequence, Either, Both, Inverse, Repeat };
  struct Node {
    Kind kind;
    bool has_empty = false;
    std::vector<Id> parts;
    int64_t least = 0, most = 0;
    CodeSet characters;
  };
  using Key = std::tuple<Kind, std::vector<Id>, int64_t, int64_t, CodeSet>;

  const Node& at(Id id) const { return nodes_[static_cast<size_t>(id)]; }
  Id add(Node node);
  Id derive(Id id, uint32_t code);
  std::vector<Id> flattened(Kind kind, std::vector<Id> ids) const;

  RuleBuilder& builder_;
  std::vector<Node> nodes_;
  std::map<Key, Id> known_;
  std::unordered_map<uint64_t, Id> derived_;  // by language and character
  size_t unpaid_ = 0;
};

}  // namespace millrace
