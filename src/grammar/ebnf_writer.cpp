#include "grammar/ebnf_writer.h"

#include <fmt/format.h>

#include "base/ascii.h"

namespace millrace {
namespace {

std::string class_character(uint32_t code) {
  const char c = static_cast<char>(code);
  if (code < 0x80 && (is_ascii_alnum(c) || c == '_' || c == ' ')) return std::string(1, c);
  return code <= 0xFFFF ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

std::string class_text(const CodeSet& characters) {
  std::string text = "[";
  for (const auto& [first, last] : characters.ranges()) {
    text += class_character(first);
    if (last > first) text += "-" + class_character(last);
  }
  return text + "]";
}

std::string rule_name(size_t rule, size_t root) { return rule == root ? "root" : fmt::format("r{}", rule); }

std::string text_of(const GrammarNode& node, size_t root);

std::string joined(const GrammarNode& node, const char* separator, size_t root) {
  std::string text;
  for (const GrammarNode& part : node.parts) text += (text.empty() ? "" : separator) + text_of(part, root);
  return text.empty() ? "\"\"" : text;
}

std::string text_of(const GrammarNode& node, size_t root) {
  switch (node.kind) {
    case GrammarNode::Kind::Literal:
      return ebnf_literal(node.literal);
    case GrammarNode::Kind::Set:
      return class_text(node.set);
    case GrammarNode::Kind::Rule:
      return rule_name(node.rule, root);
    case GrammarNode::Kind::Sequence:
      return "(" + joined(node, " ", root) + ")";
    case GrammarNode::Kind::Choice:
      return "(" + joined(node, " | ", root) + ")";
    case GrammarNode::Kind::Repeat: {
      const std::string part = text_of(node.parts.front(), root);
      const std::string body = node.parts.front().kind == GrammarNode::Kind::Repeat ? "(" + part + ")" : part;
      if (node.least == 0 && node.most < 0) return body + "*";
      return fmt::format("{}{{{},{}}}", body, node.least, node.most < 0 ? "" : std::to_string(node.most));
    }
  }
  return "";
}

}  // namespace

std::string ebnf_literal(std::string_view text) {
  std::string literal = "\"";
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    if (byte == '"' || byte == '\\') {
      literal += '\\';
      literal += byte;
    } else if (code < 0x20 || code == 0x7F) {
      literal += fmt::format("\\u{:04x}", code);
    } else {
      literal += byte;
    }
  }
  return literal + "\"";
}

std::string write_ebnf(const GrammarRules& rules) {
  std::string text;
  for (size_t rule = 0; rule < rules.bodies.size(); ++rule) {
    text += rule_name(rule, rules.root) + " ::= " + text_of(rules.bodies[rule], rules.root) + "\n";
  }
  return text;
}

}  // namespace millrace
