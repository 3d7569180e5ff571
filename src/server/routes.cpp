#include "server/routes.h"

#include "server/chat_request.h"
#include "server/completions_request.h"
#include "server/embeddings_request.h"
#include "server/responses_request.h"
#include "server/tokenize_request.h"

namespace millrace {

bool Route::matches(std::string_view asked) const {
  const size_t brace = path.find('{');
  if (brace == std::string::npos) return asked == path;
  return asked.size() > brace && asked.substr(0, brace) == std::string_view(path).substr(0, brace);
}

const std::vector<Route>& routes() {
  static const std::vector<Route> list{
      {.method = "POST",
       .path = "/v1/chat/completions",
       .summary = "Answer a conversation",
       .endpoint = answer_chat,
       .streams = true,
       .request = chat_fields().schema(),
       .answer = chat_answer_schema()},
      {.method = "POST",
       .path = "/v1/completions",
       .summary = "Continue a text",
       .endpoint = answer_completions,
       .streams = true,
       .request = completions_fields().schema(),
       .answer = completions_answer_schema()},
      {.method = "POST",
       .path = "/v1/responses",
       .summary = "Answer a conversation; nothing is stored",
       .endpoint = answer_responses,
       .streams = true,
       .request = responses_fields().schema(),
       .answer = responses_answer_schema()},
      {.method = "POST",
       .path = "/v1/embeddings",
       .summary = "A vector for each text",
       .endpoint = answer_embeddings,
       .request = embeddings_fields().schema(),
       .answer = embeddings_answer_schema()},
      {.method = "GET",
       .path = "/v1/models",
       .summary = "The models that are served",
       .endpoint = answer_models,
       .answer = models_answer_schema()},
      {.method = "GET",
       .path = "/v1/models/{model}",
       .summary = "One of them",
       .endpoint = answer_model,
       .answer = model_answer_schema()},
      {.method = "POST",
       .path = "/tokenize",
       .summary = "Token ids of a text or a conversation",
       .endpoint = answer_tokenize,
       .request = tokenize_fields().schema(),
       .answer = tokenize_answer_schema()},
      {.method = "POST",
       .path = "/detokenize",
       .summary = "The text of token ids",
       .endpoint = answer_detokenize,
       .request = detokenize_fields().schema(),
       .answer = detokenize_answer_schema()},
      {.method = "GET",
       .path = "/health",
       .summary = "The same as /health/ready",
       .endpoint = answer_health,
       .open = true,
       .at_once = true,
       .answer = health_answer_schema()},
      {.method = "GET",
       .path = "/health/live",
       .summary = "200 while the process answers",
       .endpoint = answer_live,
       .open = true,
       .at_once = true,
       .answer = health_answer_schema()},
      {.method = "GET",
       .path = "/health/ready",
       .summary = "200 once the model is loaded, 503 before that and while the server shuts down",
       .endpoint = answer_ready,
       .open = true,
       .at_once = true,
       .answer = health_answer_schema()},
      {.method = "GET",
       .path = "/metrics",
       .summary = "Counts for Prometheus",
       .endpoint = answer_metrics,
       .open = true,
       .answer_type = "text/plain"},
      {.method = "GET",
       .path = "/openapi.json",
       .summary = "This document",
       .endpoint = answer_openapi,
       .open = true,
       .answer = Schema::object({}, Schema::Others::Allowed)},
  };
  return list;
}

}  // namespace millrace
