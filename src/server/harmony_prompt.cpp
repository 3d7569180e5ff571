#include "server/harmony_prompt.h"

#include "grammar/channels.h"
#include "server/requests/api_error.h"
#include "server/response_format.h"

namespace millrace {
namespace {

bool wants_no_reasoning(const ChatRequest& r) {
  return r.thinking_budget ? *r.thinking_budget == 0 : r.reasoning_effort == "none";
}

// The model limits its reasoning by itself as `reasoning_effort` says; only these requests force an end.
int32_t analysis_tokens(const ChatRequest& r) {
  if (r.thinking_budget) return *r.thinking_budget;
  return r.reasoning_effort == "minimal" ? 128 : -1;
}

class HarmonyTokens {
 public:
  explicit HarmonyTokens(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::vector<int32_t> encode(const std::string& text) const {
    return tokenizer_.encode(text, {.add_special = false, .parse_special = true});
  }
  int32_t special(const char* text) const {
    const auto token = tokenizer_.id_of(text);
    if (token && tokenizer_.is_special(*token)) return *token;
    fail_field("model", "unsupported_value", "this model's vocabulary lacks {}, which its chat template uses", text);
  }
  std::string text_of(int32_t token) const {
    return tokenizer_.is_special(token) ? std::string(tokenizer_.token_text(token)) : tokenizer_.token_bytes(token);
  }

 private:
  const Tokenizer& tokenizer_;
};

ChannelRules channel_rules(const HarmonyTokens& tokens, const TextModel& text) {
  ChannelRules rules{
      .start = tokens.special("<|start|>"),
      .channel = tokens.special("<|channel|>"),
      .message = tokens.special("<|message|>"),
      .end = tokens.special("<|end|>"),
      .assistant = tokens.encode("assistant"),
      .analysis = tokens.encode("<|channel|>analysis<|message|>"),
      .forbidden = text.end_tokens,
      .text_of = [tokenizer = text.tokenizer](int32_t token) { return HarmonyTokens(*tokenizer).text_of(token); }};
  for (const char* tag : {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "<|return|>"}) {
    rules.forbidden.push_back(tokens.special(tag));
  }
  std::erase(rules.forbidden, rules.end);
  return rules;
}

ChannelRoute final_route(const HarmonyTokens& tokens, std::unique_ptr<Constraint> body) {
  return {tokens.encode("<|channel|>final<|message|>"), "", std::move(body)};
}

ChannelRoute call_route(const HarmonyTokens& tokens, const GrammarSpec::Tool& tool, GrammarCompiler& grammars) {
  const GrammarSpec arguments = tool.schema.empty()
                                    ? GrammarSpec{.kind = GrammarSpec::Kind::JsonObject}
                                    : GrammarSpec{.kind = GrammarSpec::Kind::JsonSchema, .text = tool.schema};
  try {
    return {tokens.encode("<|channel|>commentary to=functions." + tool.name + " <|constrain|>json<|message|>"),
            tool.name, grammars.compile(arguments)};
  } catch (const Error& e) {
    ApiProblem problem = to_problem(e);
    if (problem.param.empty()) problem.param = "tools";
    throw ApiError(std::move(problem));
  }
}

// The template knows one call per message, with the reasoning before it in `thinking`.
void adapt_message(Json& message) {
  const auto reasoning = message.find("reasoning_content");
  if (reasoning == message.end() || message.value("role", "") != "assistant") return;
  std::string thinking = reasoning->get<std::string>();
  if (message.contains("tool_calls")) {
    // The template refuses content beside it.
    const std::string said = message.value("content", "");
    if (!said.empty()) thinking += "\n\n" + said;
    message["content"] = "";
  }
  message["thinking"] = thinking;
}

}  // namespace

void adapt_to_harmony(const ChatRequest& r, Json& context) {
  for (Json& message : context["messages"]) adapt_message(message);
  if (context.contains("tools")) {
    for (Json& tool : context["tools"]) {
      Json& function = tool["function"];
      if (!function.contains("description") || !function["description"].is_string()) function["description"] = "";
    }
  }
  if (r.reasoning_effort.empty()) return;
  const bool known = r.reasoning_effort != "none" && r.reasoning_effort != "minimal";
  context["reasoning_effort"] = known ? r.reasoning_effort : "low";
}

std::string_view harmony_opening(const ChatRequest& r, const ChatPrompt& prompt) {
  return wants_no_reasoning(r) && !prompt.parser.tools ? "<|channel|>final<|message|>" : "";
}

std::unique_ptr<Constraint> harmony_constraint(const ChatRequest& r, const ChatPrompt& prompt, ServedModel& model) {
  const int32_t budget = analysis_tokens(r);
  if (!prompt.grammar && (budget < 0 || !harmony_opening(r, prompt).empty())) return nullptr;
  const HarmonyTokens tokens(*model.text().tokenizer);
  ChannelRules rules = channel_rules(tokens, model.text());
  rules.budget = budget;
  rules.opened = tokens.encode(prompt.parser.opened);
  const bool calls = prompt.grammar && prompt.grammar->kind == GrammarSpec::Kind::ToolCalls;
  rules.strict = prompt.grammar && (!calls || prompt.forced_call);  // also for a format beside tools
  if (rules.strict && wants_no_reasoning(r)) rules.analysis.clear();
  std::vector<ChannelRoute> routes;
  if (!calls) {
    std::unique_ptr<Constraint> body;
    if (prompt.grammar) body = compile_answer(model.grammars(), *prompt.grammar, std::nullopt, r.response_format);
    routes.push_back(final_route(tokens, std::move(body)));
    if (prompt.calls) {
      for (const GrammarSpec::Tool& tool : prompt.calls->tools)
        routes.push_back(call_route(tokens, tool, model.grammars()));
    }
  } else {
    // A budget that is used up leads to the first route.
    if (!rules.strict) routes.push_back(final_route(tokens, nullptr));
    for (const GrammarSpec::Tool& tool : prompt.grammar->tools)
      routes.push_back(call_route(tokens, tool, model.grammars()));
  }
  return make_channel_constraint(std::move(rules), std::move(routes));
}

std::unique_ptr<Constraint> harmony_form(const TextModel& text, const std::string& opened, int32_t budget,
                                         std::unique_ptr<Constraint> form) {
  const HarmonyTokens tokens(*text.tokenizer);
  ChannelRules rules = channel_rules(tokens, text);
  rules.opened = tokens.encode(opened);
  rules.budget = budget;
  rules.strict = form != nullptr;
  if (budget == 0) rules.analysis.clear();
  std::vector<ChannelRoute> routes;
  routes.push_back(final_route(tokens, std::move(form)));
  return make_channel_constraint(std::move(rules), std::move(routes));
}

}  // namespace millrace
