// Helpers of Ollama's endpoints.
#pragma once

#include <string>

#include "server/served_model.h"

namespace millrace {

std::string ollama_time();                            // now, as RFC 3339
std::string ollama_time(int64_t unix_seconds);        // the same of another time
std::string without_latest(const std::string& name);  // "tiny:latest" -> "tiny"

// Throws ApiError 404 for a model that is not served.
void check_ollama_name(const ServedModel& model, const std::string& name);

}  // namespace millrace
