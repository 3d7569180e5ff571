#include "server/pair_scores.h"

#include <cmath>
#include <map>

#include "server/embedding.h"
#include "server/generation.h"

namespace millrace {
namespace {

// Two prompts for a pair of embeddings, the same one twice for a cross-encoder.
struct PromptPair {
  size_t first = 0, second = 0;
};

// How a cross-encoder's outputs become one score.
enum class ScoreFunction : uint8_t { Sigmoid, Identity, FirstOfTwo };

constexpr std::string_view kRerankTemplate = "tokenizer.chat_template.rerank";

std::optional<std::string> rerank_template(const ServedModel& model) {
  const GgufMetadata* gguf = model.runner().source().gguf();
  const auto text = gguf != nullptr ? gguf->string(kRerankTemplate) : std::nullopt;
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

// A cross-encoder with one label gives a logit, unless its config says that the score is the logit itself. The two
// labels of Qwen3-Reranker are "yes" and "no".
ScoreFunction score_function(const ServedModel& model) {
  const int64_t labels = model.runner().model().pooled_width();
  if (labels == 2 && rerank_template(model)) return ScoreFunction::FirstOfTwo;
  if (labels != 1)
    fail_field("model", "unsupported_value", "this model is a classifier of {} labels, which gives no score", labels);
  const Config& config = model.runner().source().config();
  for (const char* key : {"sentence_transformers.activation_fn", "sbert_ce_default_activation_function"}) {
    if (const auto name = config.optional_string({.hf = key}))
      return name->ends_with("Identity") ? ScoreFunction::Identity : ScoreFunction::Sigmoid;
  }
  return ScoreFunction::Sigmoid;
}

float score_of(const std::vector<float>& outputs, ScoreFunction function) {
  if (outputs.empty()) return 0;
  switch (function) {
    case ScoreFunction::Identity:
      return outputs[0];
    case ScoreFunction::FirstOfTwo:
      return static_cast<float>(1 / (1 + std::exp(double{outputs.at(1)} - outputs[0])));
    case ScoreFunction::Sigmoid:
      break;
  }
  return static_cast<float>(1 / (1 + std::exp(-double{outputs[0]})));
}

float cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double dot = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    dot += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  return static_cast<float>(aa > 0 && bb > 0 ? dot / std::sqrt(aa * bb) : 0);
}

class PairScoresSink final : public GenerationSink {
 public:
  PairScoresSink(std::shared_ptr<Call> call, PairScores work, std::vector<PromptPair> prompts, size_t count,
                 std::optional<ScoreFunction> function)
      : call_(std::move(call)),
        work_(std::move(work)),
        prompts_(std::move(prompts)),
        results_(count),
        function_(function) {}

  void on_embedding(int prompt, std::vector<float> values) override {
    results_[static_cast<size_t>(prompt)] = std::move(values);
  }
  void on_delta(const Delta&) override {}

  void on_end() override {
    std::vector<float> scores;
    for (const PromptPair& pair : prompts_) {
      scores.push_back(function_ ? score_of(results_[pair.first], *function_)
                                 : cosine(results_[pair.first], results_[pair.second]));
    }
    work_.answer(*call_, scores);
  }

 private:
  std::shared_ptr<Call> call_;
  PairScores work_;
  std::vector<PromptPair> prompts_;
  std::vector<std::vector<float>> results_;
  std::optional<ScoreFunction> function_;  // nullopt: cosines
};

// A template of llama.cpp's converter: only {query} and {document} are replaced.
std::string filled_template(const std::string& text, const std::string& query, const std::string& document) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    const bool is_query = rest.starts_with("{query}"), is_document = rest.starts_with("{document}");
    if (is_query || is_document) {
      out += is_query ? query : document;
      at += is_query ? 7 : 10;
    } else {
      out += text[at++];
    }
  }
  return out;
}

}  // namespace

void score_pairs(const std::shared_ptr<Call>& call, ApiContext& context, PairScores work) {
  ServedModel& model = context.model;
  const bool crosses = model.runner().model().pools_to_scores();
  if (!crosses && !is_embedding_model(model))
    fail_field("model", "unsupported_value", "this model is neither a cross-encoder nor an embedding model");
  const Tokenizer& tokenizer = *model.text().tokenizer;
  const auto limit = [&]() -> size_t {
    if (!work.most_tokens) return 0;
    return static_cast<size_t>(*work.most_tokens > 0 ? *work.most_tokens : model.context());
  }();
  std::vector<Request> requests;
  std::vector<PromptPair> prompts;
  std::optional<ScoreFunction> function;
  if (crosses) {
    function = score_function(model);
    const auto form = rerank_template(model);
    for (const auto& [first, second] : work.pairs) {
      EncodedPair pair = form ? EncodedPair{tokenizer.encode(filled_template(*form, first, second))}
                              : tokenizer.encode_pair(first, second, limit);
      prompts.push_back({requests.size(), requests.size()});
      requests.push_back(embedding_request(std::move(pair.ids), work.client));
      requests.back().second = pair.second;
    }
  } else {
    std::map<std::string, size_t> known;
    const auto prompt_of = [&](const std::string& text) {
      const auto [found, fresh] = known.try_emplace(text, requests.size());
      if (!fresh) return found->second;
      std::vector<int32_t> ids = tokenizer.encode(text);
      if (limit > 0 && ids.size() > limit) ids.erase(ids.begin() + static_cast<long>(limit) - 1, ids.end() - 1);
      requests.push_back(embedding_request(std::move(ids), work.client));
      return found->second;
    };
    for (const auto& [first, second] : work.pairs) {
      const size_t a = prompt_of(first), b = prompt_of(second);
      prompts.push_back({a, b});
    }
  }
  const size_t count = requests.size();
  GenerationOptions options{.prompt_field = work.field, .stop = {}, .visible = {}};
  auto sink = std::make_unique<PairScoresSink>(call, std::move(work), std::move(prompts), count, function);
  std::make_shared<Generation>(call, model, context.workers, context.metrics, std::move(options))
      ->start(std::move(requests), std::move(sink));
}

}  // namespace millrace
