#include "server/embedding.h"

#include <cmath>

#include "models/pooling_settings.h"
#include "server/requests/api_error.h"

namespace millrace {

bool is_embedding_model(const ServedModel& model) {
  const Model& m = model.runner().model();
  if (m.pools()) return !m.pools_to_scores();
  return read_pooling(model.runner().source()).kind.has_value();
}

int64_t embedding_width(const ServedModel& model) {
  const Model& m = model.runner().model();
  return m.pools() ? m.pooled_width() : m.config().hidden;
}

void check_embeddings(const ServedModel& model, const std::optional<int>& dimensions) {
  if (model.runner().model().pools_to_scores())
    fail_field("model", "unsupported_value", "this model scores pairs of texts; use /v1/rerank or /score");
  const int64_t width = embedding_width(model);
  if (!dimensions || *dimensions == width || (*dimensions < width && is_embedding_model(model))) return;
  fail_field("dimensions", "unsupported_value", "embeddings of this model have {} dimensions{}", width,
             *dimensions < width ? " and cannot be shortened" : "");
}

Request embedding_request(std::vector<int32_t> tokens, std::string client) {
  Request request;
  request.kind = RequestKind::Embed;
  request.prompt = std::move(tokens);
  request.client = std::move(client);
  return request;
}

void shorten(std::vector<float>& embedding, const std::optional<int>& dimensions) {
  if (!dimensions || static_cast<size_t>(*dimensions) >= embedding.size()) return;
  embedding.resize(static_cast<size_t>(*dimensions));
  double square = 0;
  for (const float x : embedding) square += double{x} * x;
  const double length = std::sqrt(square);
  for (float& x : embedding) x = static_cast<float>(length > 0 ? x / length : 0);
}

}  // namespace millrace
