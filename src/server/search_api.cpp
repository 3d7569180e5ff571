// POST /v1/search: a tree of continuations under a budget of tokens. The value of a branch is the mean log-probability
// of its tokens, or that of its text by a second model.
#include "engine/tree_search.h"
#include "server/answer_json.h"
#include "server/api.h"
#include "server/chat_prompt.h"
#include "server/generation.h"
#include "server/model_choice.h"
#include "server/model_pool.h"
#include "server/requests/search_request.h"
#include "server/served_model.h"

namespace millrace {
namespace {

// A second model that judges branches by their text.
struct Scorer {
  std::shared_ptr<void> lease;
  ServedModel& model;
  std::vector<int32_t> prompt;
};

// One search. Each round is a Generation of its own, with a scorer two, and its end starts the next.
class Search : public std::enable_shared_from_this<Search> {
 public:
  Search(std::shared_ptr<Call> call, ApiContext& context, const SearchRequest& r, std::vector<int32_t> prompt,
         const SearchOptions& options, std::optional<Scorer> scorer)
      : call_(std::move(call)),
        model_(context.model),
        workers_(context.workers),
        metrics_(context.metrics),
        answers_(r.n),
        prompt_(std::move(prompt)),
        sampling_(to_sampling(r, context.model.text().sampling, context.model.vocab())),
        client_(fair_client(*call_, r.user)),
        priority_(r.priority),
        tree_(options),
        scorer_(std::move(scorer)) {
    sampling_.temperature = r.temperature.value_or(0.8F);
    sampling_.logprobs = 0;
  }

  // False: the search has ended.
  bool start_round() {
    round_ = tree_.next_round();
    if (round_.empty()) return false;
    children_.assign(round_.size() * static_cast<size_t>(round_.front().children), {});
    std::vector<Request> requests;
    for (const auto& expansion : round_) requests.push_back(request_of(expansion));
    std::make_shared<Generation>(call_, model_, workers_, metrics_,
                                 GenerationOptions{.prompt_field = "messages", .stop = {}, .visible = {}})
        ->start(std::move(requests), std::make_unique<Sink>(shared_from_this()));
    return true;
  }

 private:
  struct Sink final : GenerationSink {
    explicit Sink(std::shared_ptr<Search> search) : search(std::move(search)) {}
    void on_delta(const Delta& delta) override { search->take(delta); }
    void on_end() override { search->end_round(); }
    std::shared_ptr<Search> search;
  };

  Request request_of(const TreeSearch::Expansion& expansion) {
    Request request;
    request.prompt = prompt_;
    const auto tokens = tree_.tokens(expansion.node);
    request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.end());
    request.sampling = sampling_;
    request.sampling.seed = sampling_.seed + drawn_++;  // expansions of one node draw other children
    request.max_tokens = expansion.tokens;
    request.choices = expansion.children;
    request.end_tokens = model_.text().end_tokens;
    request.client = client_;
    request.priority = priority_;
    return request;
  }

  void take(const Delta& delta) {
    TreeSearch::Child& child = children_[static_cast<size_t>(delta.choice)];
    child.spent += delta.tokens;
    for (const TokenLogprobs& token : delta.logprobs) {
      child.tokens.push_back(token.chosen.token);
      child.logprob += token.chosen.logprob;
    }
    if (delta.finish == FinishReason::Stop) child.ended = true;
  }

  // The log-probabilities that the scorer gives to the texts of the round.
  struct Scores final : GenerationSink {
    explicit Scores(std::shared_ptr<Search> search) : search(std::move(search)) {}
    void on_prompt(int prompt, std::vector<TokenLogprobs> logprobs) override {
      search->take_score(static_cast<size_t>(prompt), logprobs);
    }
    void on_delta(const Delta&) override {}
    void on_end() override { search->take_round(); }
    std::shared_ptr<Search> search;
  };

  void end_round() {
    if (!scorer_) return take_round();
    if (call_->exchange().gone()) return;
    std::vector<Request> requests;
    scored_.clear();
    auto child = children_.begin();
    for (const auto& expansion : round_) {
      for (int i = 0; i < expansion.children; ++i, ++child) {
        Request request = score_request(expansion.node, child->tokens);
        if (request.prompt.size() == scorer_->prompt.size()) continue;  // without text the value stays 0
        value_tokens_ += std::ssize(request.prompt);
        scored_.push_back(&*child);
        requests.push_back(std::move(request));
      }
    }
    if (requests.empty()) return take_round();
    guarded(*call_, [&] {
      std::make_shared<Generation>(
          call_, scorer_->model, workers_, metrics_,
          GenerationOptions{.prompt_field = "value_model", .stop = {}, .visible = {}, .lease = scorer_->lease})
          ->start(std::move(requests), std::make_unique<Scores>(shared_from_this()));
    });
  }

  // The scorer's prompt and the text of the branch, in the scorer's tokens.
  Request score_request(size_t node, const std::vector<int32_t>& more) const {
    const auto before = tree_.tokens(node);
    std::vector<int32_t> tokens(before.begin(), before.end());
    tokens.insert(tokens.end(), more.begin(), more.end());
    const std::string text = model_.text().tokenizer->decode(tokens, /*skip_special=*/true);
    const auto scored = scorer_->model.text().tokenizer->encode(text, {.add_special = false, .parse_special = false});
    Request request;
    request.kind = RequestKind::Score;
    request.prompt = scorer_->prompt;
    request.prompt.insert(request.prompt.end(), scored.begin(), scored.end());
    request.prompt_logprobs = 0;
    request.score_from = static_cast<int32_t>(scorer_->prompt.size());
    request.client = client_;
    request.priority = priority_;
    return request;
  }

  void take_score(size_t index, const std::vector<TokenLogprobs>& logprobs) {
    double sum = 0;
    for (size_t i = scorer_->prompt.size(); i < logprobs.size(); ++i) sum += sent_logprob(logprobs[i].chosen.logprob);
    scored_[index]->value = sum / static_cast<double>(logprobs.size() - scorer_->prompt.size());
  }

  void take_round() {
    auto child = children_.begin();
    for (const auto& expansion : round_) {
      std::vector<TreeSearch::Child> taken(std::make_move_iterator(child),
                                           std::make_move_iterator(child + expansion.children));
      child += expansion.children;
      const double before = tree_.logprob(expansion.node);
      const auto length = static_cast<double>(tree_.tokens(expansion.node).size());
      for (auto& one : taken) {
        if (scorer_) break;
        one.value = (before + one.logprob) / std::max(1.0, length + static_cast<double>(one.tokens.size()));
      }
      tree_.take(expansion, std::move(taken));
    }
    if (call_->exchange().gone()) return;
    try {
      if (!start_round()) answer();
    } catch (const ApiError& e) {  // the engine is too busy for another round, or drains
      call_->fail(e.problem());
    }
  }

  void answer() {
    Json choices = Json::array();
    for (const size_t node : tree_.answers()) {
      if (std::ssize(choices) == answers_) break;
      choices.push_back({{"index", choices.size()},
                         {"text", model_.text().tokenizer->decode(tree_.tokens(node), /*skip_special=*/true)},
                         {"value", tree_.value(node)},
                         {"tokens", tree_.tokens(node).size()},
                         {"finish_reason", tree_.stopped(node) ? "stop" : "length"}});
    }
    const auto prompt = static_cast<int64_t>(prompt_.size());
    Json usage{
        {"prompt_tokens", prompt}, {"completion_tokens", tree_.spent()}, {"total_tokens", prompt + tree_.spent()}};
    if (scorer_) usage["value_tokens"] = value_tokens_;
    call_->reply({{"id", make_id("search-")},
                  {"object", "search"},
                  {"model", model_.id()},
                  {"choices", std::move(choices)},
                  {"expansions", tree_.expansions()},
                  {"pruned", tree_.pruned()},
                  {"usage", std::move(usage)}});
  }

  std::shared_ptr<Call> call_;
  ServedModel& model_;
  TaskQueue& workers_;
  Metrics& metrics_;
  int answers_;
  std::vector<int32_t> prompt_;
  SamplingParams sampling_;
  std::string client_;
  int priority_;
  TreeSearch tree_;
  std::vector<TreeSearch::Expansion> round_;
  std::vector<TreeSearch::Child> children_;  // of all expansions of the round, in order
  uint64_t drawn_ = 0;
  std::optional<Scorer> scorer_;            // nullopt: the model's own log-probabilities are the values
  std::vector<TreeSearch::Child*> scored_;  // by request to the scorer
  int64_t value_tokens_ = 0;                // that it was given
};

std::vector<int32_t> search_prompt(const SearchRequest& r, const ServedModel& model) {
  if (r.messages.is_null() == r.prompt.empty())
    fail_field("messages", "invalid_value", "give either 'messages' or 'prompt'");
  if (!r.prompt.empty()) return model.text().tokenizer->encode(r.prompt);
  ChatRequest chat;
  chat.messages = r.messages;
  return make_chat_prompt(chat, model).tokens;
}

}  // namespace

void answer_search(const std::shared_ptr<Call>& call, ApiContext& context) {
  const SearchRequest r = search_fields().read(call->body());
  ServedModel& model = context.model;
  model.require_ready();
  model.check_name(r.model);
  std::vector<int32_t> prompt = search_prompt(r, model);
  const int32_t asked = std::min(r.max_tokens.value_or(r.budget_tokens), r.budget_tokens);
  // A search without max_tokens takes what fits.
  const auto room = r.max_tokens ? std::optional<int>(asked) : std::nullopt;
  int32_t longest = answer_room(prompt.size(), room, model.context(), "max_tokens");
  if (longest == 0) longest = model.context() - static_cast<int32_t>(prompt.size());
  const SearchOptions options{.budget = r.budget_tokens,
                              .width = r.width,
                              .segment = r.segment_tokens,
                              .longest = std::min(asked, longest),
                              .parallel = r.parallel,
                              .beam = r.beam};
  if (r.value_model.empty()) {
    std::make_shared<Search>(call, context, r, std::move(prompt), options, std::nullopt)->start_round();
    return;
  }
  const auto judge = context.models.find(r.value_model);
  if (!judge) {
    throw ApiError({404, fmt::format("The model '{}' does not exist here; /v1/models has the list", r.value_model),
                    "value_model", "model_not_found"});
  }
  with_lease(call, context.models, context.workers, *judge,
             [call, context, r, prompt = std::move(prompt), options](const ModelPool::Lease& lease) mutable {
               ServedModel& judge = leased_model(lease);
               Scorer scorer{lease, judge, search_prompt(r, judge)};
               std::make_shared<Search>(call, context, r, prompt, options, std::move(scorer))->start_round();
             });
}

Schema search_answer_schema() {
  const auto choice = Schema::object({{"index", Schema::integer(0), true},
                                      {"text", Schema::string(), true},
                                      {"value", Schema::number(), true},
                                      {"tokens", Schema::integer(0), true},
                                      {"finish_reason", Schema::word({"stop", "length"}), true}});
  return Schema::object({{"id", Schema::string(), true},
                         {"object", Schema::word({"search"}), true},
                         {"model", Schema::string(), true},
                         {"choices", Schema::array(choice), true},
                         {"expansions", Schema::integer(0), true},
                         {"pruned", Schema::integer(0), true},
                         {"usage",
                          Schema::object({{"prompt_tokens", Schema::integer(0), true},
                                          {"completion_tokens", Schema::integer(0), true},
                                          {"total_tokens", Schema::integer(0), true},
                                          {"value_tokens", Schema::integer(0)}}),
                          true}});
}

}  // namespace millrace
