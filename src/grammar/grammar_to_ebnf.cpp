#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "grammar/ebnf.h"
#include "grammar/grammar_compiler.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

namespace millrace {
namespace {

constexpr size_t kLongestEbnf = 256 << 10;
constexpr int64_t kMostCalls = 16;

std::string one_call(const GrammarSpec& spec, const GrammarSpec::Tool& tool, Ebnf& ebnf) {
  // The name stands inside of a JSON string.
  const std::string quoted = json_text(nlohmann::json(tool.name));
  const std::string name = quoted.substr(1, quoted.size() - 2);
  const std::string arguments = tool.schema.empty() ? any_object_to_ebnf(ebnf) : schema_to_ebnf(tool.schema, ebnf);
  return ebnf.add(ebnf_literal(spec.syntax.before + name + spec.syntax.middle) + " " + arguments + " " +
                  ebnf_literal(spec.syntax.after));
}

std::string tool_calls(const GrammarSpec& spec, Ebnf& ebnf) {
  if (spec.tools.empty()) fail(ErrorKind::Usage, "a tool call is required, but there are no tools");
  std::string any;
  for (const GrammarSpec::Tool& tool : spec.tools) {
    try {
      any += (any.empty() ? "" : " | ") + one_call(spec, tool, ebnf);
    } catch (const Error& error) {
      fail(ErrorKind::Usage, "tool \"{}\": {}", tool.name, error.what());
    }
  }
  const std::string call = ebnf.add(any);
  const std::string more =
      ebnf_repeat(ebnf.add(ebnf_literal(spec.syntax.between) + " " + call), 0, spec.parallel ? kMostCalls - 1 : 0);
  return ebnf_literal(spec.syntax.first) + " " + call + " " + more + " " + ebnf_literal(spec.syntax.end);
}

}  // namespace

std::string grammar_to_ebnf(const GrammarSpec& spec) {
  Ebnf ebnf;
  std::string root;
  switch (spec.kind) {
    case GrammarSpec::Kind::Ebnf:
      if (spec.text.size() > kLongestEbnf)
        fail(ErrorKind::Usage, "the grammar is longer than {} KiB", kLongestEbnf >> 10);
      return spec.text;
    case GrammarSpec::Kind::JsonObject:
      root = any_object_to_ebnf(ebnf);
      break;
    case GrammarSpec::Kind::JsonSchema:
      root = schema_to_ebnf(spec.text, ebnf);
      break;
    case GrammarSpec::Kind::Regex:
      root = regex_to_ebnf(spec.text, RegexUse::Answer, {}, ebnf);
      if (root.empty()) fail(ErrorKind::Usage, "no text matches the regular expression");
      break;
    case GrammarSpec::Kind::ToolCalls:
      root = tool_calls(spec, ebnf);
      break;
  }
  return std::move(ebnf).text(root);
}

}  // namespace millrace
