#include "server/response_format.h"

#include "grammar/ebnf_writer.h"
#include "server/requests/api_error.h"

namespace millrace {
namespace {

using Kind = GrammarSpec::Kind;

std::optional<GrammarSpec> from_format(const Json& format) {
  const std::string type = format["type"];
  if (type == "json_object") {
    auto schema = format.find("schema");
    if (schema == format.end() || schema->is_null()) schema = format.find("value");
    if (schema == format.end() || schema->is_null()) return GrammarSpec{.kind = Kind::JsonObject};
    Json object = *schema;
    if (!object.contains("type")) object["type"] = "object";  // JSON mode promises an object
    return GrammarSpec{.kind = Kind::JsonSchema, .text = to_text(object)};
  }
  if (type == "regex") return GrammarSpec{.kind = Kind::Regex, .text = format["regex"]};
  if (type == "grammar") return GrammarSpec{.kind = Kind::Ebnf, .text = format["grammar"]};
  if (type != "json_schema") return std::nullopt;
  const Json& described = format["json_schema"];
  const auto schema = described.find("schema");
  if (schema == described.end()) return GrammarSpec{.kind = Kind::JsonObject};
  return GrammarSpec{.kind = Kind::JsonSchema, .text = to_text(*schema)};
}

GrammarSpec one_of(const Json& choices) {
  std::string rule = "root ::= ";
  for (size_t i = 0; i < choices.size(); ++i) {
    rule += (i > 0 ? " | " : "") + ebnf_literal(choices[i].get_ref<const std::string&>());
  }
  return {.kind = Kind::Ebnf, .text = rule};
}

GrammarSpec from_outputs(const std::string& name, const Json& value) {
  if (name == "json")
    return {.kind = Kind::JsonSchema, .text = value.is_string() ? value.get<std::string>() : to_text(value)};
  if (name == "regex") return {.kind = Kind::Regex, .text = value};
  if (name == "grammar") return {.kind = Kind::Ebnf, .text = value};
  if (name == "choice") return one_of(value);
  return {.kind = Kind::JsonObject};
}

const char* field_of(const GrammarSpec& grammar, const Json& response_format) {
  if (grammar.kind == Kind::ToolCalls) return "tools";
  return response_format.is_object() && from_format(response_format) ? "response_format" : "structured_outputs";
}

}  // namespace

std::unique_ptr<Constraint> compile_answer(GrammarCompiler& grammars, const GrammarSpec& grammar,
                                           const std::optional<GrammarTrigger>& trigger, const Json& response_format) {
  try {
    return trigger ? grammars.compile(grammar, *trigger) : grammars.compile(grammar);
  } catch (const Error& e) {
    ApiProblem problem = to_problem(e);
    if (problem.param.empty()) problem.param = field_of(grammar, response_format);
    throw ApiError(std::move(problem));
  }
}

void check_end_beside_form(const SamplingRequest& r) {
  if (!r.ignore_eos && r.min_tokens == 0) return;
  const char* field = r.ignore_eos ? "ignore_eos" : "min_tokens";
  fail_field(field, "invalid_value",
             "'{}' does not go with an answer format, which alone decides where the answer ends", field);
}

std::optional<GrammarSpec> answer_grammar(const Json& response_format, const Json& structured_outputs) {
  std::optional<GrammarSpec> grammar;
  if (response_format.is_object()) grammar = from_format(response_format);
  if (!structured_outputs.is_object()) return grammar;
  for (const auto& [name, value] : structured_outputs.items()) {
    if (value.is_null() || value == false) continue;
    if (grammar) {
      fail_field("structured_outputs", "invalid_value", "{}",
                 response_format.is_object() ? "'structured_outputs' and 'response_format' ask for one form only"
                                             : "'structured_outputs' asks for more than one form");
    }
    grammar = from_outputs(name, value);
  }
  return grammar;
}

}  // namespace millrace
