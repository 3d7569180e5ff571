// The golden encoders of tests/data/encoders: tiny models with vectors and scores from transformers.
#pragma once

#include <cmath>

#include "engine/engine.h"
#include "models/golden.h"

namespace millrace {

struct EncoderInputs {
  std::vector<Request> requests;
  std::vector<std::vector<float>> results;
};

inline std::filesystem::path encoders_folder() { return std::filesystem::path(MILLRACE_TEST_DATA) / "encoders"; }

inline std::vector<std::string> all_encoders() {
  std::ifstream index(encoders_folder() / "cases.json");
  std::vector<std::string> names;
  if (!index) return names;
  for (const auto& entry : nlohmann::json::parse(index)) names.push_back(entry["name"]);
  return names;
}

inline EncoderInputs read_inputs(const std::string& name) {
  const MappedFile file(encoders_folder() / name / "expected.safetensors");
  std::map<std::string, std::span<const std::byte>> data;
  for (const auto& tensor : read_safetensors(file.bytes(), "expected")) data[tensor.name] = {tensor.data, tensor.bytes};
  const auto copy = [&](const char* key, auto& out) {
    out.resize(data.at(key).size() / sizeof(out[0]));
    std::memcpy(out.data(), data.at(key).data(), data.at(key).size());
  };
  std::vector<int32_t> tokens, lengths, second;
  std::vector<float> results;
  copy("tokens", tokens);
  copy("lengths", lengths);
  copy("second", second);
  copy("results", results);
  EncoderInputs inputs;
  const size_t width = results.size() / lengths.size();
  auto token = tokens.begin();
  for (size_t i = 0; i < lengths.size(); ++i) {
    Request request;
    request.kind = RequestKind::Embed;
    request.prompt.assign(token, token + lengths[i]);
    request.second = second[i];
    token += lengths[i];
    inputs.requests.push_back(std::move(request));
    inputs.results.emplace_back(results.begin() + static_cast<long>(i * width),
                                results.begin() + static_cast<long>((i + 1) * width));
  }
  return inputs;
}

inline std::vector<std::vector<float>> embed(const std::string& model, const std::vector<Request>& requests,
                                             LoadOptions options) {
  auto runner = load(model, std::move(options));
  Engine engine(*runner);
  std::map<RequestId, size_t> order;
  for (const Request& request : requests) order[engine.submit(request)] = order.size();
  std::vector<std::vector<float>> results(requests.size());
  while (
      engine.step([&](const Emission& e) { results[order.at(e.id)].assign(e.embedding.begin(), e.embedding.end()); })) {
  }
  return results;
}

inline void expect_results(const std::string& model, const EncoderInputs& inputs, LoadOptions options,
                           double tolerance = 1e-4) {
  const auto results = embed(model, inputs.requests, std::move(options));
  double largest = 0, error = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i].size(), inputs.results[i].size()) << model;
    for (size_t j = 0; j < results[i].size(); ++j) {
      ASSERT_TRUE(std::isfinite(results[i][j])) << model;
      largest = std::max(largest, double{std::abs(inputs.results[i][j])});
      error = std::max(error, double{std::abs(results[i][j] - inputs.results[i][j])});
    }
  }
  EXPECT_LE(error, tolerance * largest) << model;
}

}  // namespace millrace
