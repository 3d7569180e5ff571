// POST /infill: what editors that speak to llama.cpp's server use.
#include "server/answer_json.h"
#include "server/api.h"
#include "server/chat_prompt.h"
#include "server/infill.h"
#include "server/requests/infill_request.h"
#include "server/start_answer.h"

namespace millrace {
namespace {

class InfillSink final : public GenerationSink {
 public:
  InfillSink(std::shared_ptr<Call> call, std::string model, bool stream)
      : call_(std::move(call)), model_(std::move(model)), stream_(stream) {}

  void on_begin() override {
    if (stream_) call_->begin_events();
  }
  void on_delta(const Delta& delta) override {
    text_ += delta.text;
    if (delta.finish != FinishReason::None) {
      stop_type_ = !delta.stop.empty() ? "word" : delta.finish == FinishReason::Length ? "limit" : "eos";
      stopping_word_ = delta.stop;
    }
  }
  void on_pause() override {
    if (!stream_) return;
    if (!text_.empty()) call_->event({{"content", std::exchange(text_, {})}, {"stop", false}});
    call_->flush();
  }
  void on_end() override {
    const Usage& u = call_->usage;
    Json json{{"content", text_},
              {"stop", true},
              {"model", model_},
              {"tokens_predicted", u.completion_tokens},
              {"tokens_evaluated", u.prompt_tokens},
              {"tokens_cached", u.cached_tokens},
              {"truncated", false},
              {"stop_type", stop_type_},
              {"stopping_word", stopping_word_}};
    add_cascade(json, u);
    if (!stream_) return call_->reply(json);
    call_->event(json);
    call_->end_events();
  }

 private:
  std::shared_ptr<Call> call_;
  std::string model_;
  bool stream_;
  std::string text_, stop_type_ = "none", stopping_word_;
};

}  // namespace

void answer_infill(const std::shared_ptr<Call>& call, ApiContext& context) {
  const InfillRequest r = infill_fields().read(call->body());
  check_model(*call, context.model, r.model);
  if (r.n != 1) fail_field("n", "invalid_value", "'n' must be 1 here");
  InfillText text{.prefix = r.input_prefix + r.prompt, .suffix = r.input_suffix, .files = {}};
  for (const Json& file : r.input_extra) {
    const Json name = file.value("filename", Json());
    text.files.emplace_back(name.is_string() ? name.get<std::string>() : "file", file["text"]);
  }
  start_answer(call, context, [r, text](const std::shared_ptr<Call>& call, ServedModel& model) {
    PlannedAnswer answer;
    Request& request = answer.requests.emplace_back();
    request.prompt = infill_prompt(*model.text().tokenizer, text, "input_suffix");
    request.sampling = to_sampling(r, model.text().sampling, model.vocab());
    request.end_tokens = end_tokens(r, model.text().end_tokens, model.vocab());
    request.min_tokens = r.min_tokens;
    request.priority = r.priority;
    const std::optional<int> limit = r.n_predict && *r.n_predict > 0 ? r.n_predict : std::nullopt;
    request.max_tokens = answer_room(request.prompt.size(), limit, model.context(), "input_prefix");
    request.client = fair_client(*call, r.user);
    answer.sink = std::make_unique<InfillSink>(call, shown_name(*call, model), r.stream);
    answer.options = {
        .prompt_field = "input_prefix", .stop = stop_strings(r), .min_tokens = r.min_tokens, .visible = {}};
    return answer;
  });
}

Schema infill_answer_schema() {
  return Schema::object({{"content", Schema::string(), true},
                         {"stop", Schema::boolean(), true},
                         {"model", Schema::string(), true},
                         {"tokens_predicted", Schema::integer(0), true},
                         {"tokens_evaluated", Schema::integer(0), true}},
                        Schema::Others::Allowed);
}

}  // namespace millrace
