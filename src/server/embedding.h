// What the endpoints for embeddings and scores share: the model's abilities, requests, and shortened vectors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/served_model.h"

namespace millrace {

// Whether the model was made for embeddings. Generative models give them too, but none that may be shortened.
bool is_embedding_model(const ServedModel& model);

int64_t embedding_width(const ServedModel& model);

// Throws ApiError 400 for a cross-encoder, and for a number of dimensions that the model cannot give.
void check_embeddings(const ServedModel& model, const std::optional<int>& dimensions);

Request embedding_request(std::vector<int32_t> tokens, std::string client);

// The first `dimensions` numbers, scaled to length 1 again.
void shorten(std::vector<float>& embedding, const std::optional<int>& dimensions);

}  // namespace millrace
