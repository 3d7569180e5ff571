// How a model writes what is more than text in its answers, told from its chat template: tool calls and reasoning.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

enum class ToolFormat : uint8_t {
  Hermes,   // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Qwen, Hermes, and every model we instruct
            // ourselves
  Llama3,   // {"name": ..., "parameters": {...}}, perhaps after <|python_tag|>
  Mistral,  // [TOOL_CALLS][{"name": ..., "arguments": {...}}], or the newer [TOOL_CALLS]name[ARGS]{...}
};

struct AnswerFormat {
  ToolFormat tools = ToolFormat::Hermes;
  bool template_has_tools = false;  // the template renders `tools`; else instruct_about_tools() tells the model
  bool reasons = false;             // the template speaks of <think>: answers may begin with reasoning
};

AnswerFormat answer_format(std::string_view template_source);

// Whether a rendered prompt ends inside of <think>: the answer then begins with reasoning.
bool prompt_opens_reasoning(std::string_view prompt);

// The pieces around calls of a format. A list of calls is
//   first_call  before NAME middle ARGUMENTS after  (between  before NAME middle ARGUMENTS after)*  end
// with `marker` (a special token of the vocabulary, perhaps none) ahead of it all.
struct ToolSyntax {
  std::string_view marker;  // never part of the text that a token mask can force: it goes to the end of the prompt
  std::string_view first, before, middle, after, between, end;
  bool parallel;  // more than one call is possible
  // What opens a list of calls in an answer that need not be one: a part of marker and list, anywhere, or as the first
  // thing of the answer or after `restart` only.
  std::string_view opening;
  bool opens_at_start = false;
  std::string_view restart = "";
};

const ToolSyntax& tool_syntax(ToolFormat format);

}  // namespace millrace
