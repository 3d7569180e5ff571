// POST /v1/completions.
#include <algorithm>
#include <ctime>
#include <numeric>

#include "server/answer_json.h"
#include "server/api.h"
#include "server/chat_prompt.h"
#include "server/completion_logprobs.h"
#include "server/infill.h"
#include "server/requests/completions_request.h"
#include "server/response_format.h"
#include "server/start_answer.h"

namespace millrace {
namespace {

// Limit over all prompts of a call: their answers are kept until the last is done, so memory must stay bounded.
constexpr size_t kMostAnswers = 4096;

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;  // set if echoed
};

// Collects answers, or streams them.
class CompletionsSink final : public GenerationSink {
 public:
  CompletionsSink(std::shared_ptr<Call> call, const ServedModel& model, const CompletionsRequest& r, int made,
                  std::vector<Prompt> prompts)
      : call_(std::move(call)), model_(model), r_(r), made_(made), prompts_(std::move(prompts)) {
    for (size_t i = 0; i < prompts_.size() * static_cast<size_t>(made); ++i) {
      choices_.emplace_back(*model.text().tokenizer);
      if (r_.echo) choices_.back().text = prompts_[i / static_cast<size_t>(made)].text;
    }
  }

  void on_begin() override {
    if (r_.stream) call_->begin_events();
  }

  // Called before anything else of the prompt's choices.
  void on_prompt(int prompt, std::vector<TokenLogprobs> logprobs) override {
    if (!r_.echo || !r_.logprobs) return;
    const auto& [tokens, text] = prompts_[static_cast<size_t>(prompt)];
    const bool first_in_text = text.starts_with(token_string(*model_.text().tokenizer, tokens.front()));
    for (int c = 0; c < made_; ++c) {
      Choice& choice = choices_[static_cast<size_t>(prompt * made_ + c)];
      choice.logprobs.add_first(tokens.front(), InText(first_in_text));
      for (size_t i = 1; i < logprobs.size(); ++i) choice.logprobs.add(logprobs[i], InText::Yes);
    }
  }

  void on_delta(const Delta& delta) override {
    Choice& choice = choices_[static_cast<size_t>(delta.choice)];
    choice.text += delta.text;
    for (const auto& one : delta.logprobs) {
      choice.logprobs.add(one, InText(!model_.text().tokenizer->is_special(one.chosen.token)));
    }
    if (delta.finish != FinishReason::None) choice.finish = finish_word(delta.finish);
    if (r_.stream) send(delta.choice);
  }

  void on_pause() override { call_->flush(); }

  void on_end() override {
    if (!r_.stream) return call_->reply(whole());
    if (r_.include_usage) {
      Json json = head();
      json["choices"] = Json::array();
      json["usage"] = usage_json(call_->usage);
      call_->event(json);
    }
    call_->raw_event("[DONE]");
    call_->end_events();
  }

 private:
  using InText = CompletionLogprobs::InText;
  struct Choice {
    explicit Choice(const Tokenizer& tokenizer) : logprobs(tokenizer) {}
    std::string text;  // not yet sent
    CompletionLogprobs logprobs;
    Json finish;
    double likelihood() const { return logprobs.count() == 0 ? 0 : logprobs.sum() / double(logprobs.count()); }
  };

  Json head() const {
    return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", shown_name(*call_, model_)}};
  }

  Json choice_json(size_t index, Choice& choice) {
    return {{"text", std::exchange(choice.text, {})},
            {"index", index},
            {"logprobs", r_.logprobs ? choice.logprobs.take() : Json()},
            {"finish_reason", choice.finish}};
  }

  // Runs for each token, so the part common to all chunks is written once.
  void send(int index) {
    if (chunk_.empty()) chunk_ = unclosed(head()) + ",\"choices\":[";
    const Json choice = choice_json(static_cast<size_t>(index), choices_[static_cast<size_t>(index)]);
    std::string text = chunk_ + to_text(choice) + "]";
    if (r_.continuous_usage) {
      text += ",\"usage\":" + to_text(usage_json(call_->usage));
    } else if (r_.include_usage) {
      text += ",\"usage\":null";
    }
    call_->raw_event(text += '}');
  }

  // The n likeliest choices of each prompt. If all are kept, their order stays.
  Json whole() {
    Json json = head();
    json["choices"] = Json::array();
    const auto made = static_cast<size_t>(made_);
    for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
      std::vector<size_t> order(made);
      std::iota(order.begin(), order.end(), prompt * made);
      if (made_ > r_.n) {
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return choices_[a].likelihood() > choices_[b].likelihood(); });
      }
      order.resize(static_cast<size_t>(r_.n));
      for (const size_t i : order) json["choices"].push_back(choice_json(json["choices"].size(), choices_[i]));
    }
    json["usage"] = usage_json(call_->usage);
    return json;
  }

  std::shared_ptr<Call> call_;
  const ServedModel& model_;
  CompletionsRequest r_;
  int made_;  // choices per prompt
  std::vector<Prompt> prompts_;
  std::string id_ = make_id("cmpl-");
  int64_t created_ = std::time(nullptr);
  std::string chunk_;  // the common beginning of all chunks
  std::vector<Choice> choices_;
};

void check(const CompletionsRequest& r) {
  if (r.best_of && *r.best_of < r.n) fail_field("best_of", "invalid_value", "'best_of' must be at least 'n'");
  if (r.best_of && *r.best_of > r.n && r.stream) {
    fail_field("best_of", "invalid_value", "a stream cannot choose among answers: leave 'best_of' out");
  }
  if (r.best_of && *r.best_of > r.n && r.echo && r.logprobs) {
    fail_field("best_of", "invalid_value", "'best_of' and 'echo' with 'logprobs' exclude each other");
  }
  if (r.max_tokens == 0 && !r.echo) {
    fail_field("max_tokens", "invalid_value", "'max_tokens' of 0 leaves nothing to answer, unless 'echo' is set");
  }
  if (!r.suffix.empty() && r.echo) fail_field("echo", "invalid_value", "'echo' and 'suffix' exclude each other");
  if (r.max_tokens == 0 && r.n > 1) fail_field("n", "invalid_value", "a prompt is scored once: 'n' must be 1");
}

Prompt tokenize(const PromptInput& input, const CompletionsRequest& r, const Tokenizer& tokenizer) {
  Prompt prompt{.tokens = input.tokens, .text = input.text};
  if (!r.suffix.empty()) {
    if (input.is_tokens) fail_field("prompt", "invalid_value", "beside a 'suffix' the prompt must be text");
    prompt.tokens = infill_prompt(tokenizer, {.prefix = input.text, .suffix = r.suffix}, "suffix");
  } else if (!input.is_tokens) {
    prompt.tokens = tokenizer.encode(input.text, {.add_special = r.add_special_tokens});
  } else if (r.echo) {
    prompt.text = tokenizer.decode(input.tokens, /*skip_special=*/false);
  }
  return prompt;
}

Request engine_request(const CompletionsRequest& r, const Prompt& prompt, int made, ServedModel& model) {
  Request request;
  request.prompt = prompt.tokens;
  request.sampling = to_sampling(r, model.text().sampling, model.vocab());
  request.sampling.logprobs = r.logprobs ? *r.logprobs : made > r.n ? 0 : -1;
  request.choices = made;
  request.priority = r.priority;
  request.min_tokens = r.min_tokens;
  request.end_tokens = end_tokens(r, model.text().end_tokens, model.vocab());
  if (r.echo && r.logprobs) request.prompt_logprobs = *r.logprobs;
  if (r.max_tokens == 0) {
    request.kind = RequestKind::Score;
    request.prompt_logprobs = std::max(request.prompt_logprobs, 0);
  } else {
    request.max_tokens = answer_room(prompt.tokens.size(), r.max_tokens.value_or(16), model.context(), "prompt");
    check_min_tokens(request);
  }
  const auto grammar = answer_grammar(r.response_format, r.structured_outputs);
  if (grammar) check_end_beside_form(r);
  for (int i = 0; grammar && i < made; ++i) {
    request.constraints.push_back(compile_answer(model.grammars(), *grammar, std::nullopt, r.response_format));
  }
  return request;
}

}  // namespace

void answer_completions(const std::shared_ptr<Call>& call, ApiContext& context) {
  const CompletionsRequest r = completions_fields().read(call->body());
  check(r);
  check_model(*call, context.model, r.model);
  const int made = r.best_of.value_or(r.n);
  const std::vector<PromptInput> inputs = read_prompts(r.prompt);
  if (inputs.size() * static_cast<size_t>(made) > kMostAnswers) {
    fail_field(r.best_of ? "best_of" : "n", "invalid_value",
               "{} answers to {} prompts are more than {}: send less at once", made, inputs.size(), kMostAnswers);
  }
  start_answer(call, context, [r, made, inputs](const std::shared_ptr<Call>& call, ServedModel& model) {
    PlannedAnswer answer;
    std::vector<Prompt> prompts;
    for (const PromptInput& input : inputs) {
      prompts.push_back(tokenize(input, r, *model.text().tokenizer));
      answer.requests.push_back(engine_request(r, prompts.back(), made, model));
      answer.requests.back().client = fair_client(*call, r.user);
    }
    answer.sink = std::make_unique<CompletionsSink>(call, model, r, made, std::move(prompts));
    answer.options = {.prompt_field = "prompt", .stop = stop_strings(r), .min_tokens = r.min_tokens, .visible = {}};
    return answer;
  });
}

Schema completions_answer_schema() {
  const auto choice = Schema::object({{"text", Schema::string(), true},
                                      {"index", Schema::integer(0), true},
                                      {"logprobs", CompletionLogprobs::schema().or_null(), true},
                                      {"finish_reason", Schema::word({"stop", "length"}), true}});
  return Schema::object({{"id", Schema::string(), true},
                         {"object", Schema::word({"text_completion"}), true},
                         {"created", Schema::integer(0), true},
                         {"model", Schema::string(), true},
                         {"choices", Schema::array(choice), true},
                         {"usage", usage_schema(), true}});
}

}  // namespace millrace
