#include "server/generation.h"

#include <algorithm>

#include "server/metrics.h"
#include "server/served_model.h"
#include "server/session_turn.h"
#include "server/task_queue.h"

namespace millrace {
namespace {

// A call with many prompts keeps this many in the engine, and submits the next when one ends, so that it does not fill
// the queue.
constexpr size_t kUnderWay = 32;

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

const char* reason_word(FinishReason finish) {
  switch (finish) {
    case FinishReason::Stop:
      return "stop";
    case FinishReason::Length:
      return "length";
    case FinishReason::Error:
    case FinishReason::NotInForm:
      return "error";
    default:
      return "abort";
  }
}

}  // namespace

struct Generation::Choice {
  std::unique_ptr<ChoiceText> text;     // null: the model has no tokenizer
  std::vector<TokenLogprobs> logprobs;  // of tokens that no delta has reported yet
  int untold = 0;                       // their number
  int tokens = 0;
  std::vector<int32_t> answer;  // all tokens, if the call belongs to a session
  int accepted_drafts = 0, rejected_drafts = 0;
  double compute_ms = 0, joules = 0;
  Clock::time_point last;
  double first_token_seconds = 0;
  bool ended = false;
};

Generation::Generation(std::shared_ptr<Call> call, ServedModel& model, TaskQueue& workers, Metrics& metrics,
                       GenerationOptions options)
    : lease_(options.lease ? options.lease : call->model_lease),
      call_(std::move(call)),
      model_(model),
      workers_(workers),
      metrics_(metrics),
      options_(std::move(options)) {}

Generation::~Generation() = default;

void Generation::start(std::vector<Request> requests, std::unique_ptr<GenerationSink> sink) {
  sink_ = std::move(sink);
  requests_ = std::move(requests);
  choices_ = requests_.front().choices;
  ids_.resize(requests_.size());
  open_choices_ = requests_.size() * static_cast<size_t>(choices_);
  all_.resize(open_choices_);
  for (auto& request : requests_) {
    if (!options_.lease) request.adapter = call_->adapter;
    call_->usage.prompt_tokens += static_cast<int64_t>(request.prompt.size());
  }
  if (model_.text().tokenizer) {
    for (auto& choice : all_) {
      choice.text =
          std::make_unique<ChoiceText>(*model_.text().tokenizer, options_.stop, options_.min_tokens, options_.visible);
    }
  }
  if (sink_->waits_for_tool(0)) turn_ = std::make_unique<SessionTurn>(model_, *call_, requests_.front());
  try {
    submit_next();
  } catch (const Error& e) {
    throw ApiError(problem_of(e));  // before the stream begins, so it is a plain error answer
  }
  sink_->on_begin();
  call_->exchange().on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->client_left();
  });
  submit_some();
  process();
}

ApiProblem Generation::problem_of(const Error& error) const {
  ApiProblem problem = to_problem(error);
  if (error.kind() == ErrorKind::Usage) problem.param = options_.prompt_field;
  return problem;
}

void Generation::submit_next() {
  const size_t prompt = submitted_;
  const RequestId id =
      model_.service().submit(std::move(requests_[prompt]),
                              [self = shared_from_this(), prompt](const Emission& e) { self->on_emission(prompt, e); });
  ++submitted_;
  ++under_way_;
  const std::lock_guard lock(mutex_);
  ids_[prompt] = id;
  if (left_) model_.service().cancel(id);
}

void Generation::submit_some() {
  while (!over_ && submitted_ < requests_.size() && under_way_ < kUnderWay) {
    Request again = requests_[submitted_];  // a copy, submitted again later if the engine is busy now
    try {
      submit_next();
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::Busy && under_way_ > 0) {
        requests_[submitted_] = std::move(again);
        return;
      }
      return give_up(problem_of(e));
    }
  }
}

void Generation::on_emission(size_t prompt, const Emission& emission) {
  Arrival arrival{.emission = emission, .prompt = prompt, .at = Clock::now()};
  if (emission.logprobs != nullptr) {
    arrival.has_logprobs = true;
    arrival.logprobs = *emission.logprobs;
  }
  arrival.prompt_logprobs.assign(emission.prompt_logprobs.begin(), emission.prompt_logprobs.end());
  arrival.embedding.assign(emission.embedding.begin(), emission.embedding.end());
  arrival.error = emission.error;
  const std::lock_guard lock(mutex_);
  arrivals_.push_back(std::move(arrival));
  if (std::exchange(processing_, true)) return;
  // A piece of a stream is little work. If all cores compute, it is an errand of the pool: waking another thread would
  // preempt a worker and stall the whole step. Otherwise the I/O thread does it, which wakes one thread instead of two.
  // Whole answers may be large and go to a worker, so that other connections do not wait.
  auto task = [self = shared_from_this()] { self->process(); };
  if (!call_->streaming()) return workers_.post(std::move(task));
  if (!model_.service().errand(task)) call_->exchange().post(std::move(task));
}

void Generation::process() {
  while (true) {
    std::vector<Arrival> arrivals;
    {
      const std::lock_guard lock(mutex_);
      if (arrivals_.empty()) {
        processing_ = false;
        return;
      }
      arrivals.swap(arrivals_);
    }
    try {
      for (auto& arrival : arrivals) take(arrival);
      if (!over_) sink_->on_pause();
    } catch (const std::exception& e) {  // probably out of memory: this call ends, the server goes on
      give_up({500, std::string("internal error: ") + e.what(), "", ""});
    }
  }
}

void Generation::take(Arrival& arrival) {
  const Emission& e = arrival.emission;
  const int index = static_cast<int>(arrival.prompt) * choices_ + e.choice;
  Choice& choice = all_[static_cast<size_t>(index)];
  if (over_ || choice.ended) return;
  if (e.finish == FinishReason::Error) return give_up({500, arrival.error, "", "engine_error"});
  if (e.finish == FinishReason::NotInForm) return give_up({400, arrival.error, "response_format", "not_in_form"});
  if (e.finish == FinishReason::Cancelled) return give_up({503, "the server is shutting down", "", "shutting_down"});
  if (e.choice == 0 && choice.tokens == 0) call_->usage.cached_tokens += e.cached_tokens;
  call_->usage.accepted_drafts += e.accepted_drafts - std::exchange(choice.accepted_drafts, e.accepted_drafts);
  call_->usage.rejected_drafts += e.rejected_drafts - std::exchange(choice.rejected_drafts, e.rejected_drafts);
  call_->usage.queued_ms = std::max(call_->usage.queued_ms, e.queued_ms);
  call_->usage.compute_ms += e.compute_ms - std::exchange(choice.compute_ms, e.compute_ms);
  if (e.joules) {
    double& joules = call_->usage.joules ? *call_->usage.joules : call_->usage.joules.emplace(0);
    joules += *e.joules - std::exchange(choice.joules, *e.joules);
  }
  if (!arrival.prompt_logprobs.empty()) {
    sink_->on_prompt(static_cast<int>(arrival.prompt), std::move(arrival.prompt_logprobs));
  }
  if (!arrival.embedding.empty()) {
    sink_->on_embedding(static_cast<int>(arrival.prompt), std::move(arrival.embedding));
  }
  if (e.token >= 0) return take_token(choice, index, arrival);
  if (e.finish != FinishReason::None) end_choice(choice, index, e.finish, arrival);
}

void Generation::take_token(Choice& choice, int index, Arrival& arrival) {
  const Emission& e = arrival.emission;
  if (choice.tokens == 0) {
    choice.first_token_seconds = seconds(arrival.at - call_->arrived());
    metrics_.observe_first_token(choice.first_token_seconds);
  } else {
    metrics_.observe_next_token(seconds(arrival.at - choice.last));
  }
  choice.last = arrival.at;
  ++choice.tokens;
  ++choice.untold;
  if (turn_) choice.answer.push_back(e.token);
  ++call_->usage.completion_tokens;
  if (arrival.has_logprobs && !e.is_end) choice.logprobs.push_back(std::move(arrival.logprobs));
  std::string text;
  if (choice.text && !e.is_end) text = choice.text->push(e.token);
  if (choice.text && choice.text->stopped()) {
    model_.service().cancel(ids_[arrival.prompt], e.choice);
    tell(choice, index, std::move(text), FinishReason::None);
    return end_choice(choice, index, FinishReason::Stop, arrival);
  }
  // The last token is reported together with the end, unless it has text.
  const bool says = !text.empty() || !choice.logprobs.empty() || e.finish == FinishReason::None;
  if (choice.text && says) tell(choice, index, std::move(text), FinishReason::None);
  if (e.finish != FinishReason::None) end_choice(choice, index, e.finish, arrival);
}

void Generation::tell(Choice& choice, int index, std::string text, FinishReason finish) {
  const bool stopped = choice.text && choice.text->stopped() && finish != FinishReason::None;
  sink_->on_delta({index, std::move(text), std::exchange(choice.logprobs, {}), std::exchange(choice.untold, 0), finish,
                   stopped ? choice.text->stop_found() : ""});
}

void Generation::end_choice(Choice& choice, int index, FinishReason finish, Arrival& arrival) {
  choice.ended = true;
  std::string rest;
  if (choice.text && !choice.text->stopped()) rest = choice.text->finish();
  const Emission& e = arrival.emission;
  metrics_.observe_choice({.prompt_tokens = e.prompt_tokens,
                           .completion_tokens = choice.tokens,
                           .cached_tokens = e.cached_tokens,
                           .seconds = seconds(arrival.at - call_->arrived()),
                           .queued_seconds = e.queued_ms / 1000,
                           .first_token_seconds = choice.first_token_seconds,
                           .reason = reason_word(finish)});
  tell(choice, index, std::move(rest), finish);
  --open_choices_;
  const auto first = all_.begin() + static_cast<long>(arrival.prompt) * choices_;
  if (std::all_of(first, first + choices_, [](const Choice& c) { return c.ended; })) {
    --under_way_;
    submit_some();
  }
  if (open_choices_ > 0 || over_) return;
  over_ = true;
  end_turn();
  sink_->on_end();
}

// The first choice that calls a tool goes on; without one the session ends with the first choice.
void Generation::end_turn() {
  if (!turn_) return;
  size_t waiting = 0;
  while (waiting < all_.size() && !sink_->waits_for_tool(static_cast<int>(waiting)).value_or(false)) ++waiting;
  const bool waits = waiting < all_.size();
  turn_->end(all_[waits ? waiting : 0].answer, waits);
}

void Generation::give_up(const ApiProblem& problem) {
  over_ = true;
  cancel_all();
  const std::lock_guard lock(mutex_);
  if (!left_) call_->fail(problem);
}

void Generation::client_left() {
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
  }
  cancel_all();
}

void Generation::cancel_all() {
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    ids = ids_;
  }
  for (const RequestId id : ids) {
    if (id != 0) model_.service().cancel(id);
  }
}

}  // namespace millrace
