// Ollama's POST /api/embed and /api/embeddings.
#include "server/api.h"
#include "server/embedding.h"
#include "server/generation.h"
#include "server/ollama_json.h"
#include "server/requests/ollama_request.h"

namespace millrace {
namespace {

class EmbedSink final : public GenerationSink {
 public:
  EmbedSink(std::shared_ptr<Call> call, std::string model, size_t inputs, bool older, std::optional<int> dimensions)
      : call_(std::move(call)), model_(std::move(model)), vectors_(inputs), older_(older), dimensions_(dimensions) {}

  void on_embedding(int prompt, std::vector<float> values) override {
    shorten(values, dimensions_);
    vectors_[static_cast<size_t>(prompt)] = std::move(values);
  }
  void on_delta(const Delta&) override {}

  void on_end() override {
    if (older_) return call_->reply(Json{{"embedding", vectors_.front()}});
    const auto time = std::chrono::nanoseconds(Call::Clock::now() - call_->arrived()).count();
    call_->reply(Json{{"model", model_},
                      {"embeddings", vectors_},
                      {"total_duration", time},
                      {"load_duration", 0},
                      {"prompt_eval_count", call_->usage.prompt_tokens}});
  }

 private:
  std::shared_ptr<Call> call_;
  std::string model_;
  std::vector<std::vector<float>> vectors_;
  bool older_;
  std::optional<int> dimensions_;
};

void embed(const std::shared_ptr<Call>& call, ApiContext& context, const OllamaEmbedRequest& r, bool older) {
  ServedModel& model = context.model;
  model.require_ready();
  check_ollama_name(model, r.model);
  check_embeddings(model, r.dimensions);
  const std::string name = r.model.empty() ? model.id() : r.model;
  // Clients load a model with an empty input.
  const bool is_empty = r.input.is_null() || (r.input.is_string() && r.input.get_ref<const std::string&>().empty());
  const Json texts = r.input.is_array() ? r.input : is_empty ? Json::array() : Json::array({r.input});
  if (texts.empty() && older) return call->reply(Json{{"embedding", Json::array()}});
  if (texts.empty()) return call->reply(Json{{"model", name}, {"embeddings", Json::array()}});
  std::vector<Request> requests;
  for (const Json& text : texts) {
    std::vector<int32_t> ids = model.text().tokenizer->encode(text.get_ref<const std::string&>());
    // The last token is often a special one, which the model expects at the end.
    if (const auto most = static_cast<size_t>(model.context()); r.truncate && ids.size() > most)
      ids.erase(ids.begin() + static_cast<long>(most) - 1, ids.end() - 1);
    requests.push_back(embedding_request(std::move(ids), fair_client(*call, "")));
    requests.back().normalise = true;
  }
  auto sink = std::make_unique<EmbedSink>(call, name, requests.size(), older, r.dimensions);
  const GenerationOptions options{.prompt_field = older ? "prompt" : "input", .stop = {}, .visible = {}};
  std::make_shared<Generation>(call, model, context.workers, context.metrics, options)
      ->start(std::move(requests), std::move(sink));
}

}  // namespace

void answer_ollama_embed(const std::shared_ptr<Call>& call, ApiContext& context) {
  embed(call, context, ollama_embed_fields().read(call->body()), /*older=*/false);
}

void answer_ollama_embeddings(const std::shared_ptr<Call>& call, ApiContext& context) {
  embed(call, context, ollama_embeddings_fields().read(call->body()), /*older=*/true);
}

}  // namespace millrace
