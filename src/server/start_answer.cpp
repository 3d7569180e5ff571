#include "server/start_answer.h"

#include "server/cascade.h"
#include "server/metrics.h"
#include "server/served_model.h"

namespace millrace {
namespace {

void start(const std::shared_ptr<Call>& call, ServedModel& model, TaskQueue& workers, Metrics& metrics,
           PlannedAnswer answer) {
  std::make_shared<Generation>(call, model, workers, metrics, std::move(answer.options))
      ->start(std::move(answer.requests), std::move(answer.sink));
}

// Holds the small model's answer until it is whole, and decides.
class HeldAnswer final : public GenerationSink {
 public:
  // `shows_logprobs`: the client asked for them, too.
  HeldAnswer(std::shared_ptr<Call> call, const ApiContext& context, MakeAnswer make,
             std::unique_ptr<GenerationSink> sink, bool shows_logprobs)
      : call_(std::move(call)),
        context_(context),
        make_(std::move(make)),
        sink_(std::move(sink)),
        shows_logprobs_(shows_logprobs) {}

  void on_begin() override {
    if (sink_->begins_at_once()) sink_->on_begin();
  }
  void on_prompt(int prompt, std::vector<TokenLogprobs> logprobs) override {
    prompts_.emplace_back(prompt, std::move(logprobs));
  }
  void on_delta(const Delta& delta) override {
    for (const TokenLogprobs& token : delta.logprobs) sum_ += token.chosen.logprob;
    count_ += delta.logprobs.size();
    deltas_.push_back(delta);
    if (!shows_logprobs_) deltas_.back().logprobs.clear();
  }

  void on_end() override {
    const auto mean = count_ > 0 ? std::optional(sum_ / static_cast<double>(count_)) : std::nullopt;
    if (call_->cascade->keeps(mean)) return keep(*mean);
    escalate(call_, context_, mean,
             [call = call_, &workers = context_.workers, &metrics = context_.metrics,
              make = make_](ServedModel& large) { start(call, large, workers, metrics, make(call, large)); });
  }

 private:
  void keep(double mean) {
    Usage& usage = call_->usage;
    const std::string& name = context_.models.names(call_->cascade->small).front();
    usage.cascade = {name, mean, call_->cascade->threshold, usage.prompt_tokens, usage.completion_tokens};
    context_.metrics.count_cascade(name, 0);
    if (!sink_->begins_at_once()) sink_->on_begin();
    for (auto& [prompt, logprobs] : prompts_) sink_->on_prompt(prompt, std::move(logprobs));
    for (const Delta& delta : deltas_) sink_->on_delta(delta);
    sink_->on_end();
  }

  std::shared_ptr<Call> call_;
  const ApiContext context_;
  MakeAnswer make_;
  std::unique_ptr<GenerationSink> sink_;
  bool shows_logprobs_;
  double sum_ = 0;  // of the log-probabilities of all tokens
  size_t count_ = 0;
  std::vector<std::pair<int, std::vector<TokenLogprobs>>> prompts_;
  std::vector<Delta> deltas_;
};

}  // namespace

MakeAnswer with_names(MakeAnswer make, ApiProblem (*rename)(ApiProblem)) {
  return [make = std::move(make), rename](const std::shared_ptr<Call>& call, ServedModel& model) {
    try {
      return make(call, model);
    } catch (const ApiError& e) {
      throw ApiError(rename(e.problem()));
    }
  };
}

void start_answer(const std::shared_ptr<Call>& call, const ApiContext& context, MakeAnswer make) {
  PlannedAnswer answer = make(call, context.model);
  const bool decided = call->cascade == nullptr || call->usage.cascade;
  if (decided) return start(call, context.model, context.workers, context.metrics, std::move(answer));
  const bool shows_logprobs = answer.requests.front().sampling.logprobs >= 0;
  for (Request& request : answer.requests) {
    if (request.kind != RequestKind::Generate) {
      fail_field("model", "unsupported_value", "{} does not score prompts: name one of its models, {} or {}",
                 call->cascade->name, context.models.names(call->cascade->small).front(),
                 context.models.names(call->cascade->large).front());
    }
    if (!shows_logprobs) request.sampling.logprobs = 0;
  }
  answer.sink = std::make_unique<HeldAnswer>(call, context, std::move(make), std::move(answer.sink), shows_logprobs);
  start(call, context.model, context.workers, context.metrics, std::move(answer));
}

}  // namespace millrace
