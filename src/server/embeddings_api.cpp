// POST /v1/embeddings.
#include <bit>

#include "server/answer_json.h"
#include "server/api.h"
#include "server/base64.h"
#include "server/embedding.h"
#include "server/generation.h"
#include "server/requests/embeddings_request.h"
#include "server/served_model.h"

namespace millrace {
namespace {

Json embedding_json(const std::vector<float>& values, bool base64) {
  if (!base64) return values;
  static_assert(std::endian::native == std::endian::little);
  return to_base64({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

class EmbeddingsSink final : public GenerationSink {
 public:
  EmbeddingsSink(std::shared_ptr<Call> call, std::string model, const EmbeddingsRequest& r, size_t inputs)
      : call_(std::move(call)),
        model_(std::move(model)),
        base64_(r.encoding_format == "base64"),
        dimensions_(r.dimensions),
        embeddings_(inputs) {}

  void on_embedding(int prompt, std::vector<float> values) override {
    shorten(values, dimensions_);
    embeddings_[static_cast<size_t>(prompt)] = std::move(values);
  }
  void on_delta(const Delta&) override {}

  void on_end() override {
    Json json{{"object", "list"}, {"data", Json::array()}, {"model", model_}};
    for (size_t i = 0; i < embeddings_.size(); ++i) {
      json["data"].push_back(
          {{"object", "embedding"}, {"index", i}, {"embedding", embedding_json(embeddings_[i], base64_)}});
    }
    json["usage"] = {{"prompt_tokens", call_->usage.prompt_tokens}, {"total_tokens", call_->usage.prompt_tokens}};
    call_->reply(json);
  }

 private:
  std::shared_ptr<Call> call_;
  std::string model_;
  bool base64_;
  std::optional<int> dimensions_;
  std::vector<std::vector<float>> embeddings_;
};

}  // namespace

void answer_embeddings(const std::shared_ptr<Call>& call, ApiContext& context) {
  const EmbeddingsRequest r = embeddings_fields().read(call->body());
  ServedModel& model = context.model;
  model.require_ready();
  model.check_name(r.model);
  check_embeddings(model, r.dimensions);
  std::vector<Request> requests;
  for (PromptInput& input : read_prompts(r.input)) {
    requests.push_back(
        embedding_request(input.is_tokens ? std::move(input.tokens) : model.text().tokenizer->encode(input.text),
                          fair_client(*call, r.user)));
  }
  auto sink = std::make_unique<EmbeddingsSink>(call, shown_name(*call, model), r, requests.size());
  std::make_shared<Generation>(call, model, context.workers, context.metrics,
                               GenerationOptions{.prompt_field = "input", .stop = {}, .visible = {}})
      ->start(std::move(requests), std::move(sink));
}

Schema embeddings_answer_schema() {
  const auto one =
      Schema::object({{"object", Schema::word({"embedding"}), true},
                      {"index", Schema::integer(0), true},
                      {"embedding", Schema::any_of({Schema::array(Schema::number()), Schema::string()}), true}});
  return Schema::object({{"object", Schema::word({"list"}), true},
                         {"data", Schema::array(one), true},
                         {"model", Schema::string(), true},
                         {"usage", usage_schema(), true}});
}

}  // namespace millrace
