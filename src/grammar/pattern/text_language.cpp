#include "grammar/pattern/text_language.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace millrace {
namespace {

constexpr size_t kStepsPerByte = 8;  // of the builder's bound, which is about a second of work

}  // namespace

TextLanguages::TextLanguages(RuleBuilder& builder) : builder_(builder) {
  nodes_.push_back({.kind = Kind::Nothing});
  nodes_.push_back({.kind = Kind::Empty, .has_empty = true});
  constexpr Id kCharacter = 3;
  nodes_.push_back({.kind = Kind::Repeat, .has_empty = true, .parts = {kCharacter}, .least = 0, .most = -1});
  nodes_.push_back({.kind = Kind::Set, .characters = CodeSet().complement()});
  known_[{Kind::Repeat, {kCharacter}, 0, -1, {}}] = kAnything;
  known_[{Kind::Set, {}, 0, 0, nodes_.back().characters}] = kCharacter;
}

TextLanguages::Id TextLanguages::add(Node node) {
  const auto [found, fresh] = known_.try_emplace(Key(node.kind, node.parts, node.least, node.most, node.characters),
                                                 static_cast<Id>(nodes_.size()));
  if (!fresh) return found->second;
  unpaid_ += 1 + node.parts.size();
  if (unpaid_ >= kStepsPerByte) builder_.spend(std::exchange(unpaid_, 0) / kStepsPerByte);
  nodes_.push_back(std::move(node));
  return found->second;
}

TextLanguages::Id TextLanguages::one_of(const CodeSet& characters) {
  if (characters.empty()) return kNothing;
  return add({.kind = Kind::Set, .characters = characters});
}

TextLanguages::Id TextLanguages::sequence(Id first, Id rest) {
  if (first == kNothing || rest == kNothing) return kNothing;
  if (first == kEmpty) return rest;
  if (rest == kEmpty || (first == kAnything && rest == kAnything)) return first;
  if (at(first).kind == Kind::Sequence) {
    const Id head = at(first).parts[0], tail = at(first).parts[1];
    return sequence(head, sequence(tail, rest));
  }
  return add({.kind = Kind::Sequence, .has_empty = has_empty(first) && has_empty(rest), .parts = {first, rest}});
}

std::vector<TextLanguages::Id> TextLanguages::flattened(Kind kind, std::vector<Id> ids) const {
  std::vector<Id> flat;
  for (const Id id : ids) {
    if (at(id).kind == kind) {
      flat.insert(flat.end(), at(id).parts.begin(), at(id).parts.end());
    } else {
      flat.push_back(id);
    }
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  return flat;
}

TextLanguages::Id TextLanguages::either(std::vector<Id> ids) {
  std::vector<Id> parts = flattened(Kind::Either, std::move(ids));
  CodeSet characters;
  size_t sets = 0;
  std::erase_if(parts, [&](Id id) {
    if (at(id).kind == Kind::Set) {
      characters.add(at(id).characters);
      ++sets;
    }
    return id == kNothing || at(id).kind == Kind::Set;
  });
  if (sets > 0) parts.insert(std::upper_bound(parts.begin(), parts.end(), one_of(characters)), one_of(characters));
  const bool empty = std::any_of(parts.begin(), parts.end(), [&](Id id) { return has_empty(id); });
  if (std::find(parts.begin(), parts.end(), kAnything) != parts.end()) return kAnything;
  if (parts.empty()) return kNothing;
  if (parts.size() == 1) return parts.front();
  return add({.kind = Kind::Either, .has_empty = empty, .parts = std::move(parts)});
}

TextLanguages::Id TextLanguages::both(std::vector<Id> ids) {
  std::vector<Id> parts = flattened(Kind::Both, std::move(ids));
  std::erase(parts, kAnything);
  const bool empty = std::all_of(parts.begin(), parts.end(), [&](Id id) { return has_empty(id); });
  if (std::find(parts.begin(), parts.end(), kNothing) != parts.end()) return kNothing;
  if (std::find(parts.begin(), parts.end(), kEmpty) != parts.end()) return empty ? kEmpty : kNothing;
  if (parts.empty()) return kAnything;
  if (parts.size() == 1) return parts.front();
  return add({.kind = Kind::Both, .has_empty = empty, .parts = std::move(parts)});
}

TextLanguages::Id TextLanguages::inverse(Id id) {
  if (id == kNothing) return kAnything;
  if (id == kAnything) return kNothing;
  if (at(id).kind == Kind::Inverse) return at(id).parts.front();
  return add({.kind = Kind::Inverse, .has_empty = !has_empty(id), .parts = {id}});
}

TextLanguages::Id TextLanguages::repeat(Id id, int64_t least, int64_t most) {
  if (most == 0 || id == kEmpty) return kEmpty;
  if (id == kNothing) return least == 0 ? kEmpty : kNothing;
  if (least == 1 && most == 1) return id;
  if (id == kAnything) return kAnything;
  if (has_empty(id)) least = 0;
  return add({.kind = Kind::Repeat, .has_empty = least == 0, .parts = {id}, .least = least, .most = most});
}

TextLanguages::Id TextLanguages::text(std::string_view text) {
  const std::vector<uint32_t> codes = code_points(text);
  Id id = kEmpty;
  for (size_t i = codes.size(); i-- > 0;) id = sequence(one_of({{codes[i], codes[i]}}), id);
  return id;
}

TextLanguages::Id TextLanguages::after(Id id, uint32_t code) {
  const uint64_t key = static_cast<uint64_t>(id) << 32 | code;
  const auto known = derived_.find(key);
  if (known != derived_.end()) return known->second;
  const Id result = derive(id, code);
  derived_[key] = result;
  return result;
}

TextLanguages::Id TextLanguages::derive(Id id, uint32_t code) {
  if (at(id).kind == Kind::Set) return at(id).characters.contains(code) ? kEmpty : kNothing;
  const Node node = at(id);  // a copy: nodes_ reallocates
  unpaid_ += 1 + node.parts.size();
  if (unpaid_ >= kStepsPerByte) builder_.spend(std::exchange(unpaid_, 0) / kStepsPerByte);
  std::vector<Id> parts;
  switch (node.kind) {
    case Kind::Nothing:
    case Kind::Empty:
    case Kind::Set:
      return kNothing;
    case Kind::Sequence:
      parts.push_back(sequence(after(node.parts[0], code), node.parts[1]));
      if (has_empty(node.parts[0])) parts.push_back(after(node.parts[1], code));
      return either(std::move(parts));
    case Kind::Repeat: {
      const Id rest = repeat(node.parts[0], std::max<int64_t>(node.least - 1, 0), std::max<int64_t>(node.most - 1, -1));
      return sequence(after(node.parts[0], code), rest);
    }
    case Kind::Inverse:
      return inverse(after(node.parts[0], code));
    case Kind::Either:
    case Kind::Both:
      for (const Id part : node.parts) parts.push_back(after(part, code));
      return node.kind == Kind::Either ? either(std::move(parts)) : both(std::move(parts));
  }
  return kNothing;
}

bool TextLanguages::has(Id id, std::string_view text) {
  for (const uint32_t code : code_points(text)) id = after(id, code);
  return has_empty(id);
}

std::vector<CodeSet> TextLanguages::classes(Id id) const {
  std::set<Id> seen;
  std::vector<Id> open = {id};
  std::vector<const CodeSet*> sets;
  std::set<uint32_t> begins = {0, 0xD800, 0xE000};
  while (!open.empty()) {
    const Id one = open.back();
    open.pop_back();
    if (!seen.insert(one).second) continue;
    open.insert(open.end(), at(one).parts.begin(), at(one).parts.end());
    if (at(one).kind != Kind::Set) continue;
    sets.push_back(&at(one).characters);
    for (const auto& [first, last] : at(one).characters.ranges()) begins.insert({first, last + 1});
  }
  builder_.spend(begins.size() * (1 + sets.size()) / 64);
  std::map<std::vector<bool>, CodeSet> classes;
  for (auto begin = begins.begin(); begin != begins.end() && *begin <= CodeSet::kLast; ++begin) {
    const auto next = std::next(begin);
    if (*begin == 0xD800) continue;
    std::vector<bool> holds;
    for (const CodeSet* set : sets) holds.push_back(set->contains(*begin));
    classes[holds].add(*begin, next == begins.end() ? CodeSet::kLast : *next - 1);
  }
  std::vector<CodeSet> result;
  for (auto& [holds, characters] : classes) result.push_back(std::move(characters));
  return result;
}

}  // namespace millrace
