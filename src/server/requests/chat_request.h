// The body of POST /v1/chat/completions.
#pragma once

#include "server/requests/api_error.h"
#include "server/requests/sampling_request.h"

namespace millrace {

struct ChatRequest : SamplingRequest {
  Json messages = Json::array();
  std::optional<int> max_tokens, max_completion_tokens;
  bool logprobs = false;
  int top_logprobs = 0;
  Json tools = Json::array();
  Json tool_choice;  // null: auto if there are tools
  bool parallel_tool_calls = true;
  Json response_format;          // null: text
  Json structured_outputs;       // vLLM's alternative: {json, regex, choice, grammar}; also of guided_*
  std::string reasoning_effort;  // empty: the model's default
  std::optional<int> thinking_budget;
  bool reasoning_optional = false;  // a model that cannot reason answers without
  Json chat_template_kwargs = Json::object();
  std::string verbosity;                // low, medium or high; empty: medium
  bool continue_final_message = false;  // the answer continues the last message, the assistant's
  std::optional<bool> add_generation_prompt;
  bool opens_answer = true;               // false in /tokenize: the messages alone
  std::vector<std::string> custom_tools;  // names of tools that take free text; in `tools` they are functions
  bool legacy_functions = false;          // `functions` instead of `tools`: the answer has `function_call`
};

const Fields<ChatRequest>& chat_fields();

// Shared with other requests.
Schema messages_schema();
Schema tools_schema();  // functions
Schema tool_choice_schema();
Schema verbosity_schema();
Schema response_format_schema();
Schema structured_outputs_schema();
Schema free_object();  // accepts any object

// vLLM's older names of the members of structured_outputs.
template <class R>
std::vector<Field<R>> guided_fields() {
  std::vector<Field<R>> fields;
  const auto add = [&](const char* name, const char* member, Schema schema) {
    fields.push_back({name, std::move(schema), [member](R& r, const Json& json) {
                        if (r.structured_outputs.is_object() && r.structured_outputs.contains(member)) {
                          fail_field("structured_outputs", "invalid_value", "the answer's form is given twice");
                        }
                        r.structured_outputs[member] = json;
                      }});
  };
  add("guided_json", "json", Schema::any_of({free_object(), Schema::string(1)}).about("a JSON Schema"));
  add("guided_regex", "regex", Schema::string(1));
  add("guided_choice", "choice", Schema::array(Schema::string(1), 1, 256));
  add("guided_grammar", "grammar", Schema::string(1).about("EBNF; the rule root is the answer"));
  return fields;
}
Schema json_schema_format();  // {name, schema, strict} of a response format

// The text of a message's content: a string, or its text parts joined.
std::string content_text(const Json& content);

// The messages as chat templates expect them: contents are strings, tool call arguments are objects, developer becomes
// system. Throws ApiError for content that the model cannot take.
Json template_messages(const Json& messages);

}  // namespace millrace
