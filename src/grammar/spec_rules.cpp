#include "grammar/spec_rules.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"
#include "grammar/ebnf_check.h"
#include "grammar/ebnf_parser.h"
#include "grammar/ebnf_writer.h"
#include "grammar/pattern/regex.h"
#include "grammar/schema/schema.h"

namespace millrace {
namespace {

constexpr size_t kLongestEbnf = 256 << 10;
constexpr int64_t kMostCalls = 16;

GrammarNode one_call(const GrammarSpec& spec, const GrammarSpec::Tool& tool, RuleBuilder& builder) {
  // The name is inside of a JSON string.
  const std::string quoted = json_text(nlohmann::json(tool.name));
  const std::string name = quoted.substr(1, quoted.size() - 2);
  GrammarNode arguments = tool.schema.empty() ? any_object_rule(builder) : schema_rule(tool.schema, builder);
  return builder.add(
      node::sequence(spec.syntax.before + name + spec.syntax.middle, std::move(arguments), spec.syntax.after));
}

GrammarNode tool_calls(const GrammarSpec& spec, RuleBuilder& builder) {
  if (spec.tools.empty()) fail(ErrorKind::Usage, "a tool call is required, but there are no tools");
  std::vector<GrammarNode> calls;
  for (const GrammarSpec::Tool& tool : spec.tools) {
    try {
      calls.push_back(one_call(spec, tool, builder));
    } catch (const Error& error) {
      fail(ErrorKind::Usage, "tool \"{}\": {}", tool.name, error.what());
    }
  }
  const GrammarNode call = builder.add(*node::choice_of(std::move(calls)));
  GrammarNode more =
      node::repeat(builder.add(node::sequence(spec.syntax.between, call)), 0, spec.parallel ? kMostCalls - 1 : 0);
  return node::sequence(spec.syntax.first, call, std::move(more), spec.syntax.end);
}

GrammarRules checked_ebnf(const std::string& text) {
  if (text.size() > kLongestEbnf) fail(ErrorKind::Usage, "the grammar is longer than {} KiB", kLongestEbnf >> 10);
  check_ebnf(text);
  return parse_ebnf(text);
}

}  // namespace

GrammarRules rules_of(const GrammarSpec& spec) {
  RuleBuilder builder;
  std::optional<GrammarNode> root;
  switch (spec.kind) {
    case GrammarSpec::Kind::Ebnf:
      return checked_ebnf(spec.text);
    case GrammarSpec::Kind::JsonObject:
      root = any_object_rule(builder);
      break;
    case GrammarSpec::Kind::JsonSchema:
      root = schema_rule(spec.text, builder);
      break;
    case GrammarSpec::Kind::Regex:
      root = regex_rule(spec.text, RegexUse::Answer, {}, builder);
      if (!root) fail(ErrorKind::Usage, "no text matches the regular expression");
      break;
    case GrammarSpec::Kind::ToolCalls:
      root = tool_calls(spec, builder);
      break;
  }
  return std::move(builder).finish(std::move(*root));
}

std::string grammar_to_ebnf(const GrammarSpec& spec) {
  return spec.kind == GrammarSpec::Kind::Ebnf ? spec.text : write_ebnf(rules_of(spec));
}

}  // namespace millrace
