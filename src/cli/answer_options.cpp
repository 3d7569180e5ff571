#include "cli/answer_options.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json_text.h"
#include "cli/read_text.h"
#include "models/model.h"

namespace millrace {
namespace {

// A schema in the argument itself begins with a brace; anything else is the name of a file.
std::string schema_text(const std::string& given) {
  std::string text = ascii_trim(given).starts_with('{') ? given : read_file_or_stdin(given);
  const auto json = read_ordered_json(text);
  if (!json.is_object() && !json.is_boolean()) fail(ErrorKind::Usage, "--schema {}: is not a JSON Schema", given);
  return text;
}

std::string grammar_text(const std::string& given) {
  return given.find("::=") != std::string::npos ? given : read_file_or_stdin(given);
}

std::optional<int32_t> read_thinking(std::string_view given) {
  if (given == "on") return -1;
  if (given == "off") return 0;
  int32_t tokens = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), tokens);
  if (error != std::errc() || end != given.data() + given.size() || tokens < 0) return std::nullopt;
  return tokens;
}

std::string thinking_problem(const std::string& given) {
  return read_thinking(given) ? "" : given + " is none of on, off and a number of tokens";
}

}  // namespace

int32_t thinking_budget(const std::string& given) {
  const auto tokens = read_thinking(given);
  if (!tokens) fail(ErrorKind::Usage, "--thinking: {}", thinking_problem(given));
  return *tokens;
}

void add_answer_options(CLI::App& verb, AnswerOptions& o) {
  verb.add_option("--system", o.system, "a system message before the prompt");
  verb.add_option("--template", o.template_file, "a file with a chat template (Jinja), instead of the model's");
  verb.add_option("--thinking", o.thinking,
                  "on or off: whether the model reasons before it answers; or N: for at most so many tokens")
      ->check(CLI::Validator(thinking_problem, "{on,off}"));
  auto* schema = verb.add_option("--schema", o.schema, "the answer is JSON of this schema: a file, or the JSON itself");
  verb.add_option("--grammar", o.grammar, "the answer follows this grammar: a file, or EBNF with a rule 'root ::= '")
      ->excludes(schema);
}

std::optional<GrammarSpec> answer_form(const AnswerOptions& o) {
  if (!o.schema.empty()) return GrammarSpec{.kind = GrammarSpec::Kind::JsonSchema, .text = schema_text(o.schema)};
  if (!o.grammar.empty()) return GrammarSpec{.kind = GrammarSpec::Kind::Ebnf, .text = grammar_text(o.grammar)};
  return std::nullopt;
}

TextModel load_text_model(const WeightSource& source, const AnswerOptions& o) {
  find_architecture(source);  // an unknown one explains more than a missing tokenizer
  TextModel text = load_text_model(source);
  if (!o.template_file.empty()) {
    const std::string own = read_file_or_stdin(o.template_file);
    if (own.empty()) fail(ErrorKind::Usage, "--template {}: is empty", o.template_file);
    ChatTemplate(own, o.template_file);  // reports errors before the model is loaded
    text.chat = load_chat_templates(source, own);
  }
  return text;
}

}  // namespace millrace
