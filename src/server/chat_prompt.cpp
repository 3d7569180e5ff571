#include "server/chat_prompt.h"

#include <algorithm>

#include "base/ascii.h"
#include "grammar/either.h"
#include "grammar/thinking.h"
#include "server/harmony_prompt.h"
#include "server/requests/api_error.h"
#include "server/response_format.h"
#include "text/answer/instructions.h"

namespace millrace {
namespace {

bool is_word(const Json& choice, const char* word) { return choice.is_string() && choice == word; }

bool must_call(const Json& choice) {
  if (!choice.is_object()) return is_word(choice, "required");
  return choice["type"] == "function" || choice["allowed_tools"]["mode"] == "required";
}

const Json& tool_named(const ChatRequest& r, const Json& name) {
  const auto found =
      std::find_if(r.tools.begin(), r.tools.end(), [&](const Json& tool) { return tool["function"]["name"] == name; });
  if (found == r.tools.end()) {
    fail_field("tool_choice", "invalid_value", "'tool_choice' names '{}', which is not among 'tools'",
               name.get<std::string>());
  }
  return *found;
}

// The tools shown to the model: none, all, or those that `tool_choice` names.
Json offered_tools(const ChatRequest& r) {
  if (r.tools.empty()) {
    if (r.tool_choice.is_object() || must_call(r.tool_choice))
      fail_field("tool_choice", "invalid_value", "'tool_choice' wants a tool, but there are no 'tools'");
    return Json::array();
  }
  if (is_word(r.tool_choice, "none")) return Json::array();
  if (!r.tool_choice.is_object()) return r.tools;
  if (r.tool_choice["type"] == "function") return Json::array({tool_named(r, r.tool_choice["function"]["name"])});
  Json allowed = Json::array();
  for (const Json& tool : r.tool_choice["allowed_tools"]["tools"])
    allowed.push_back(tool_named(r, tool["function"]["name"]));
  return allowed;
}

std::vector<std::string> tool_names(const Json& tools) {
  std::vector<std::string> names;
  for (const Json& tool : tools) names.push_back(tool["function"]["name"]);
  for (size_t i = 0; i < names.size(); ++i) {
    const bool plain = names[i].find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == std::string::npos;
    if (!plain)
      fail_field(fmt::format("tools[{}].function.name", i), "invalid_value",
                 "a tool's name is made of letters, digits, '_', '-' and '.'");
    if (std::count(names.begin(), names.end(), names[i]) > 1) {
      fail_field(fmt::format("tools[{}].function.name", i), "invalid_value", "two tools are called '{}'", names[i]);
    }
  }
  return names;
}

bool is_strict(const Json& tool) { return tool["function"].value("strict", Json()) == true; }

// OpenAI defines a function without parameters as one with an empty list of them.
Json no_parameters() { return {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}}; }

// An unforced call must match its tool's schema if that is strict, otherwise any object.
GrammarSpec tool_call_grammar(const Json& tools, const ToolSyntax& syntax, bool parallel, bool forced) {
  GrammarSpec spec{.kind = GrammarSpec::Kind::ToolCalls, .parallel = parallel && syntax.parallel};
  const auto text = [](std::string_view view) { return std::string(view); };
  spec.syntax = {text(syntax.first), text(syntax.before),  text(syntax.middle),
                 text(syntax.after), text(syntax.between), text(syntax.end)};
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    Json parameters = function.value("parameters", Json());
    if (parameters.is_null()) parameters = no_parameters();
    const bool typed = (forced || is_strict(tool)) && !parameters.empty();
    spec.tools.push_back({function["name"], typed ? to_text(parameters) : ""});
  }
  return spec;
}

// The grammar starts with `first` and `before`. The text that opens a call is part of these, or a marker before them.
GrammarTrigger call_trigger(const ToolSyntax& syntax, std::span<const std::string> visible,
                            const Tokenizer& tokenizer) {
  GrammarTrigger trigger{.text = std::string(syntax.opening),
                         .in_grammar = syntax.opening != syntax.marker,
                         .at_start = syntax.opens_at_start,
                         .restart = std::string(syntax.restart)};
  for (const std::string& marker : visible) {
    const auto token = tokenizer.id_of(marker);
    if (token && tokenizer.is_special(*token)) trigger.markers.emplace_back(*token, marker);
  }
  return trigger;
}

// The special token in front of calls; -1: calls begin with plain text.
int32_t marker_token(const ToolSyntax& syntax, const Tokenizer& tokenizer) {
  const auto token = tokenizer.id_of(syntax.marker);
  return token && tokenizer.is_special(*token) ? *token : -1;
}

// A forced call makes the whole answer a call. Beside a response format the answer is calls or of that format.
// Otherwise the grammar applies once the model opens a call.
void constrain_calls(const ChatRequest& r, const Json& tools, const Tokenizer& tokenizer, ChatPrompt& prompt) {
  if (tools.empty()) return;
  prompt.held_is_call = prompt.forced_call;
  if (prompt.grammar && !prompt.forced_call) {
    const ToolSyntax& syntax = tool_syntax(prompt.parser.format.tools);
    prompt.calls = tool_call_grammar(tools, syntax, r.parallel_tool_calls, false);
    if (marker_token(syntax, tokenizer) < 0) prompt.calls->syntax.first.insert(0, syntax.marker);
    prompt.held_is_call = !syntax.opens_at_start;
    return;
  }
  if (!prompt.forced_call && std::none_of(tools.begin(), tools.end(), is_strict)) return;
  const ToolSyntax& syntax = tool_syntax(prompt.parser.format.tools);
  prompt.grammar = tool_call_grammar(tools, syntax, r.parallel_tool_calls, prompt.forced_call);
  if (!prompt.forced_call && !prompt.parser.format.harmony())
    prompt.trigger = call_trigger(syntax, prompt.visible, tokenizer);
}

void apply_reasoning(const ChatRequest& r, const AnswerFormat& format, Json& context) {
  if (r.reasoning_effort.empty() && !r.thinking_budget) return;
  if (!format.reasons && r.reasoning_optional) return;
  if (!format.reasons && r.reasoning_effort != "none") {
    fail_field(r.reasoning_effort.empty() ? "thinking_budget" : "reasoning_effort", "unsupported_value",
               "this model does not reason before it answers");
  }
  if (!r.reasoning_effort.empty()) context["reasoning_effort"] = r.reasoning_effort;
  if (r.reasoning_effort == "none" && !context.contains("enable_thinking")) context["enable_thinking"] = false;
}

// Reasoning effort as a number of tokens; -1: no limit.
int32_t thinking_tokens(const ChatRequest& r) {
  if (r.thinking_budget) return *r.thinking_budget;
  if (r.reasoning_effort == "none") return 0;
  if (r.reasoning_effort == "minimal") return 128;
  if (r.reasoning_effort == "low") return 512;
  if (r.reasoning_effort == "medium") return 2048;
  if (r.reasoning_effort == "high") return 8192;
  return -1;
}

std::shared_ptr<Constraint> make_constraint(const ChatRequest& r, const ChatPrompt& prompt, ServedModel& model) {
  if (prompt.parser.format.harmony()) return harmony_constraint(r, prompt, model);
  std::unique_ptr<Constraint> answer;
  if (prompt.grammar) answer = compile_answer(model.grammars(), *prompt.grammar, prompt.trigger, r.response_format);
  if (prompt.calls) {
    std::vector<Alternative> ways;
    ways.push_back({std::move(answer)});
    ways.push_back({compile_answer(model.grammars(), *prompt.calls, std::nullopt, r.response_format),
                    marker_token(tool_syntax(prompt.parser.format.tools), *model.text().tokenizer)});
    answer = make_either_constraint(std::move(ways), model.vocab());
  }
  const int32_t budget = thinking_tokens(r);
  const bool may_think = prompt.parser.in_reasoning || (prompt.parser.format.reasons && !prompt.forced_call);
  if (!may_think) return answer;
  return behind_reasoning(*model.text().tokenizer, prompt.parser.in_reasoning, budget, std::move(answer));
}

// Cuts the prompt behind the content of the last message, so that the answer continues it. The content is looked up in
// the ranges that come from the conversation: markup may contain the same text.
void cut_behind_last_message(const std::string& content, RenderedChat& chat) {
  const std::string_view wanted = ascii_trim(content);
  for (auto range = chat.content.rbegin(); range != chat.content.rend(); ++range) {
    const std::string_view said = std::string_view(chat.text).substr(range->first, range->second - range->first);
    const size_t at = said.rfind(wanted);
    if (at == std::string_view::npos) continue;
    size_t end = at + wanted.size();
    const std::string_view spaces = std::string_view(content).substr(content.find(wanted) + wanted.size());
    if (said.substr(end).starts_with(spaces)) end += spaces.size();
    range->second = range->first + end;
    chat.content.erase(range.base(), chat.content.end());
    chat.text.resize(range->second);
    return;
  }
  fail_field("continue_final_message", "unsupported_value",
             "the chat template does not show the last message's content");
}

// The content that the answer continues; empty: the answer begins a message.
std::string continued_content(const ChatRequest& r) {
  if (r.add_generation_prompt && *r.add_generation_prompt == r.continue_final_message) {
    fail_field("add_generation_prompt", "invalid_value",
               "'add_generation_prompt' must be false with 'continue_final_message' and true without it");
  }
  if (!r.continue_final_message) return "";
  const Json& last = r.messages.back();
  if (last["role"] != "assistant") {
    fail_field("continue_final_message", "invalid_value", "the last message must be the assistant's");
  }
  if (last.contains("tool_calls") && !last["tool_calls"].empty()) {
    fail_field("continue_final_message", "invalid_value", "a message with tool calls cannot be continued");
  }
  const std::string content = last.contains("content") ? content_text(last["content"]) : "";
  if (ascii_trim(content).empty()) {
    fail_field("continue_final_message", "invalid_value", "the last message has no content to continue");
  }
  return content;
}

std::string_view about_length(const std::string& verbosity) {
  if (verbosity == "low") return "Answer as briefly as possible.";
  if (verbosity == "high") return "Answer in detail.";
  return "";
}

}  // namespace

int32_t answer_room(size_t prompt_tokens, std::optional<int> asked, int32_t context, const char* param) {
  const auto prompt = static_cast<int64_t>(prompt_tokens);
  const int64_t wanted = prompt + std::max(asked.value_or(1), 1);
  if (wanted > context) {
    fail_field(
        param, "context_length_exceeded",
        "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in the prompt, {} in "
        "the completion). Please shorten one of them.",
        context, wanted, prompt, wanted - prompt);
  }
  return static_cast<int32_t>(asked.value_or(0));
}

void check_min_tokens(const Request& request) {
  if (request.max_tokens == 0 || request.min_tokens <= request.max_tokens) return;
  fail_field("min_tokens", "invalid_value", "'min_tokens' must be at most the tokens of the answer, {}",
             request.max_tokens);
}

ChatPrompt make_chat_prompt(const ChatRequest& r, const ServedModel& model) {
  if (model.runner().model().pools())
    fail_field("model", "unsupported_value", "this model makes embeddings or scores texts; it cannot chat");
  if (!model.has_template()) {
    fail_field("messages", "no_chat_template", "this model has no chat template; use /v1/completions");
  }
  ChatPrompt prompt;
  const Json tools = offered_tools(r);
  prompt.parser.format = answer_format(model.template_source(!tools.empty()));
  prompt.parser.tools = !tools.empty();
  prompt.parser.names = tool_names(tools);
  prompt.one_call = !r.parallel_tool_calls;
  prompt.grammar = answer_grammar(r);
  prompt.forced_call = !tools.empty() && must_call(r.tool_choice);
  const std::string continued = continued_content(r);

  for (const char* own : {"messages", "tools"}) {  // they would be replaced without a word
    if (!r.chat_template_kwargs.contains(own)) continue;
    fail_field("chat_template_kwargs", "invalid_value", "'{}' is a field of the request, not a variable", own);
  }
  Json context = r.chat_template_kwargs;
  context["messages"] = template_messages(r.messages);
  const bool opens = r.opens_answer && continued.empty();
  context["add_generation_prompt"] = opens;
  apply_reasoning(r, prompt.parser.format, context);
  if (!prompt.parser.format.template_has_tools) {
    context["messages"] = instruct_about_tools(std::move(context["messages"]), tools);
  } else if (!tools.empty()) {
    context["tools"] = tools;
  }
  if (const std::string_view sentence = about_length(r.verbosity); !sentence.empty()) {
    context["messages"] = add_to_system(std::move(context["messages"]), std::string(sentence));
  }
  const bool harmony = prompt.parser.format.harmony();
  if (harmony) adapt_to_harmony(r, context);
  RenderedChat chat = model.render(std::move(context));
  if (!continued.empty()) cut_behind_last_message(continued, chat);
  if (harmony) {
    if (opens) chat.text += harmony_opening(r, prompt);
    prompt.parser.opened = harmony_opened(chat.text);
  } else {
    prompt.parser.in_reasoning = prompt.parser.format.reasons && prompt_opens_reasoning(chat.text);
  }
  prompt.visible = answer_markers(prompt.parser.format, prompt.parser.tools);
  constrain_calls(r, tools, *model.text().tokenizer, prompt);
  if (prompt.forced_call && !prompt.parser.in_reasoning && !harmony) {
    const std::string_view marker = tool_syntax(prompt.parser.format.tools).marker;
    chat.text += marker;
    prompt.parser.after_marker = !marker.empty();
  }
  prompt.tokens = encode_chat(*model.text().tokenizer, chat);
  return prompt;
}

Request make_chat_engine_request(const ChatRequest& r, const ChatPrompt& prompt, ServedModel& model) {
  if (r.max_tokens && r.max_completion_tokens && *r.max_tokens != *r.max_completion_tokens) {
    fail_field("max_tokens", "invalid_value", "'max_tokens' and 'max_completion_tokens' differ; give one of them");
  }
  if (r.top_logprobs > 0 && !r.logprobs) {
    fail_field("top_logprobs", "invalid_value", "'top_logprobs' needs 'logprobs': true");
  }
  Request request;
  request.prompt = prompt.tokens;
  request.sampling = to_sampling(r, model.text().sampling, model.vocab());
  if (r.logprobs) request.sampling.logprobs = r.top_logprobs;
  request.max_tokens =
      answer_room(prompt.tokens.size(), r.max_completion_tokens ? r.max_completion_tokens : r.max_tokens,
                  model.context(), "messages");
  request.end_tokens = end_tokens(r, model.text().end_tokens, model.vocab());
  request.min_tokens = r.min_tokens;
  check_min_tokens(request);
  request.choices = r.n;
  request.priority = r.priority;
  for (int i = 0; i < r.n; ++i) {
    auto constraint = make_constraint(r, prompt, model);
    if (!constraint) break;
    request.constraints.push_back(std::move(constraint));
  }
  // A limit of the reasoning alone leaves the end to the model, except between the channels of harmony.
  const bool has_form = prompt.grammar || prompt.calls || prompt.parser.format.harmony();
  if (has_form && !request.constraints.empty()) check_end_beside_form(r);
  return request;
}

}  // namespace millrace
