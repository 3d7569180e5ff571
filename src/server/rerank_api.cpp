// POST /v1/rerank and /score.
#include <algorithm>
#include <ctime>
#include <numeric>

#include "server/answer_json.h"
#include "server/pair_scores.h"
#include "server/requests/rerank_request.h"
#include "server/served_model.h"

namespace millrace {
namespace {

std::string document_text(const Json& document) {
  return document.is_string() ? document.get<std::string>() : document["text"].get<std::string>();
}

std::vector<std::string> score_texts(const Json& json) {
  if (json.is_string()) return {json.get<std::string>()};
  return json.get<std::vector<std::string>>();
}

Json pair_usage(const Call& call) {
  return {{"prompt_tokens", call.usage.prompt_tokens}, {"total_tokens", call.usage.prompt_tokens}};
}

}  // namespace

void answer_rerank(const std::shared_ptr<Call>& call, ApiContext& context) {
  RerankRequest r = rerank_fields().read(call->body());
  ServedModel& model = context.model;
  model.require_ready();
  model.check_name(r.model);
  PairScores work{.pairs = {},
                  .field = "documents",
                  .most_tokens = r.truncate_prompt_tokens,
                  .client = fair_client(*call, r.user),
                  .answer = {}};
  for (const Json& document : r.documents) work.pairs.emplace_back(r.query, document_text(document));
  work.answer = [r = std::move(r), id = model.id()](Call& call, const std::vector<float>& scores) {
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    order.resize(std::min(order.size(), static_cast<size_t>(r.top_n.value_or(static_cast<int>(order.size())))));
    Json json{{"id", make_id("rerank-")}, {"model", id}, {"usage", pair_usage(call)}, {"results", Json::array()}};
    for (const size_t i : order) {
      Json one{{"index", i}, {"relevance_score", scores[i]}};
      if (r.return_documents) one["document"] = {{"text", document_text(r.documents[i])}};
      json["results"].push_back(std::move(one));
    }
    call.reply(json);
  };
  score_pairs(call, context, std::move(work));
}

void answer_score(const std::shared_ptr<Call>& call, ApiContext& context) {
  const ScoreRequest r = score_fields().read(call->body());
  ServedModel& model = context.model;
  model.require_ready();
  model.check_name(r.model);
  const auto first = score_texts(r.text_1), second = score_texts(r.text_2);
  if (first.size() != 1 && first.size() != second.size()) {
    fail_field("text_2", "invalid_value", "text_1 has {} texts and text_2 {}: give one text_1, or as many as text_2",
               first.size(), second.size());
  }
  PairScores work{.pairs = {},
                  .field = "text_2",
                  .most_tokens = r.truncate_prompt_tokens,
                  .client = fair_client(*call, r.user),
                  .answer = {}};
  for (size_t i = 0; i < second.size(); ++i) work.pairs.emplace_back(first[first.size() == 1 ? 0 : i], second[i]);
  work.answer = [id = model.id()](Call& call, const std::vector<float>& scores) {
    Json json{{"id", make_id("score-")}, {"object", "list"},         {"created", std::time(nullptr)}, {"model", id},
              {"data", Json::array()},   {"usage", pair_usage(call)}};
    for (size_t i = 0; i < scores.size(); ++i)
      json["data"].push_back({{"index", i}, {"object", "score"}, {"score", scores[i]}});
    call.reply(json);
  };
  score_pairs(call, context, std::move(work));
}

Schema rerank_answer_schema() {
  const auto document = Schema::object({{"text", Schema::string(), true}});
  const auto one = Schema::object({{"index", Schema::integer(0), true},
                                   {"relevance_score", Schema::number(), true},
                                   {"document", document, false}});
  return Schema::object({{"id", Schema::string(), true},
                         {"model", Schema::string(), true},
                         {"usage", usage_schema(), true},
                         {"results", Schema::array(one), true}});
}

Schema score_answer_schema() {
  const auto one = Schema::object({{"index", Schema::integer(0), true},
                                   {"object", Schema::word({"score"}), true},
                                   {"score", Schema::number(), true}});
  return Schema::object({{"id", Schema::string(), true},
                         {"object", Schema::word({"list"}), true},
                         {"created", Schema::integer(0), true},
                         {"model", Schema::string(), true},
                         {"data", Schema::array(one), true},
                         {"usage", usage_schema(), true}});
}

}  // namespace millrace
