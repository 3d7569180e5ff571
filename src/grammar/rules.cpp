#include "grammar/rules.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

using NodeKind = GrammarNode::Kind;

size_t decimal_digits(uint64_t value) {
  size_t digits = 1;
  for (; value >= 10; value /= 10) ++digits;
  return digits;
}

// Bytes of a character in a class; all but letters and digits are escaped.
size_t character_size(uint32_t code) {
  const bool plain = (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z') ||
                     code == '_' || code == ' ';
  return plain ? 1 : code <= 0xFFFF ? 6 : 10;
}

void append_flat(std::vector<GrammarNode>& all, GrammarNode part, NodeKind kind) {
  if (part.kind != kind) return all.push_back(std::move(part));
  all.insert(all.end(), std::make_move_iterator(part.parts.begin()), std::make_move_iterator(part.parts.end()));
}

GrammarNode combined(NodeKind kind, std::vector<GrammarNode> parts) {
  GrammarNode node{.kind = kind};
  if (std::none_of(parts.begin(), parts.end(), [&](const GrammarNode& part) { return part.kind == kind; })) {
    node.parts = std::move(parts);
  } else {
    for (GrammarNode& part : parts) append_flat(node.parts, std::move(part), kind);
  }
  return node;
}

}  // namespace

namespace node {

GrammarNode literal(std::string_view text) {
  GrammarNode node{.kind = NodeKind::Literal};
  node.literal = text;
  return node;
}

GrammarNode one_of(CodeSet characters) {
  GrammarNode node{.kind = NodeKind::Set};
  node.set = std::move(characters);
  return node;
}

GrammarNode repeat(GrammarNode part, int64_t least, int64_t most) {
  if (most == 0) return empty();
  if (least == 1 && most == 1) return part;
  GrammarNode node{.kind = NodeKind::Repeat, .least = least, .most = most};
  node.parts.push_back(std::move(part));
  return node;
}

GrammarNode sequence_of(std::vector<GrammarNode> parts) {
  std::erase_if(parts, [](const GrammarNode& part) { return part.kind == NodeKind::Literal && part.literal.empty(); });
  if (parts.empty()) return empty();
  if (parts.size() == 1) return std::move(parts.front());
  return combined(NodeKind::Sequence, std::move(parts));
}

std::optional<GrammarNode> choice_of(std::vector<GrammarNode> ways) {
  if (ways.empty()) return {};
  if (ways.size() == 1) return std::move(ways.front());
  return combined(NodeKind::Choice, std::move(ways));
}

}  // namespace node

size_t written_size(const GrammarNode& node) {
  size_t size = 0;
  for (const GrammarNode& part : node.parts) size += written_size(part);
  switch (node.kind) {
    case NodeKind::Literal:
      return node.literal.size() + 2;
    case NodeKind::Set:
      for (const auto& [first, last] : node.set.ranges())
        size += character_size(first) + (last > first ? 1 + character_size(last) : 0);
      return size + 2;
    case NodeKind::Rule:
      return 1 + decimal_digits(node.rule);
    case NodeKind::Sequence:
      return size + node.parts.size();
    case NodeKind::Choice:
      return size + 3 * node.parts.size();
    case NodeKind::Repeat:
      if (node.least == 0 && (node.most < 0 || node.most == 1)) return size + 3;
      return size + 5 + decimal_digits(static_cast<uint64_t>(node.least)) +
             (node.most < 0 ? 0 : decimal_digits(static_cast<uint64_t>(node.most)));
  }
  return size;
}

void RuleBuilder::spend(size_t bytes) {
  spent_ += bytes;
  if (spent_ > kMostBytes) {
    fail(ErrorKind::Usage, "the grammar is too large: it grows beyond {} KiB of rules", kMostBytes >> 10);
  }
}

GrammarNode RuleBuilder::add(GrammarNode body) {
  if (body.kind == NodeKind::Rule) return body;
  GrammarNode rule = reserve();
  define(rule, std::move(body));
  return rule;
}

GrammarNode RuleBuilder::reserve() {
  GrammarNode rule{.kind = NodeKind::Rule};
  rule.rule = rules_.bodies.size();
  rules_.bodies.emplace_back();
  return rule;
}

void RuleBuilder::define(const GrammarNode& rule, GrammarNode body) {
  spend(written_size(rule) + written_size(body) + 8);
  rules_.bodies[rule.rule] = std::move(body);
}

GrammarRules RuleBuilder::finish(GrammarNode root) && {
  rules_.root = rules_.bodies.size();
  rules_.bodies.push_back(std::move(root));
  return std::move(rules_);
}

std::vector<uint32_t> code_points(std::string_view text) {
  if (!is_valid_utf8(text)) fail(ErrorKind::Usage, "the grammar is not valid UTF-8");
  std::vector<uint32_t> codes;
  for (size_t at = 0; at < text.size();) codes.push_back(next_utf8(text, at));
  return codes;
}

}  // namespace millrace
