// The golden models of tests/data/goldens: tiny random models with logits and tokens from Hugging Face transformers.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "engine/runner.h"
#include "engine/step_batch.h"
#include "formats/safetensors.h"

namespace millrace {

struct Golden {
  std::string name;
  std::filesystem::path folder;
  double tolerance = 0;
  bool has_gguf = false, has_v4 = false;
  bool has_stacked = false;  // the experts of each layer in one tensor, as transformers 5 names them
};

inline std::filesystem::path goldens_folder() { return std::filesystem::path(MILLRACE_TEST_DATA) / "goldens"; }

inline std::vector<Golden> all_goldens() {
  std::ifstream index(goldens_folder() / "cases.json");
  std::vector<Golden> goldens;
  if (!index) return goldens;  // tests are named before any runs; one of them reports the missing goldens
  for (const auto& entry : nlohmann::json::parse(index)) {
    Golden golden{entry["name"], goldens_folder() / entry["name"].get<std::string>(), entry["tolerance"]};
    golden.has_gguf = std::filesystem::exists(golden.folder / "model.gguf");
    golden.has_v4 = std::filesystem::exists(golden.folder / "config_v4.json");
    golden.has_stacked = std::filesystem::exists(golden.folder / "stacked.safetensors");
    goldens.push_back(golden);
  }
  return goldens;
}

struct Expected {
  std::vector<int32_t> tokens, rows, greedy;
  std::vector<float> logits;  // one row of `vocab` for each of `rows`
};

inline Expected read_expected(const Golden& golden) {
  const MappedFile file(golden.folder / "expected.safetensors");
  std::map<std::string, std::span<const std::byte>> data;
  for (const auto& tensor : read_safetensors(file.bytes(), "expected"))
    data[tensor.name] = {tensor.data, static_cast<size_t>(tensor.bytes)};
  const auto copy = [&](const char* name, auto& out) {
    out.resize(data.at(name).size() / sizeof(out[0]));
    std::memcpy(out.data(), data.at(name).data(), data.at(name).size());
  };
  Expected expected;
  copy("tokens", expected.tokens);
  copy("rows", expected.rows);
  copy("greedy", expected.greedy);
  copy("logits", expected.logits);
  return expected;
}

inline std::unique_ptr<Runner> load(const std::string& model, LoadOptions options) {
  auto runner = std::make_unique<Runner>(open_weights(model), options);
  runner->load();
  return runner;
}

// The logits of all positions, computed `chunk` tokens at a time.
inline std::vector<std::vector<float>> all_logits(Runner& runner, const std::vector<int32_t>& tokens, int32_t chunk) {
  const auto length = static_cast<int32_t>(tokens.size());
  BlockTable table = runner.state().new_table(length);
  EXPECT_TRUE(table.reserve(length));
  const Slot slot = runner.state().new_slot();
  StepBatch step(chunk, 1, chunk);
  std::vector<std::vector<float>> rows;
  for (int32_t done = 0; done < length; done += chunk) {
    const int32_t count = std::min(chunk, length - done);
    step.clear();
    step.add(std::span(tokens).subspan(done, count), done, length, table.pages(), StepBatch::Logits::All, slot.id());
    const Matrix logits = runner.forward(step.batch());
    for (int64_t i = 0; i < logits.rows; ++i)
      rows.emplace_back(logits.row<float>(i), logits.row<float>(i) + logits.cols);
  }
  return rows;
}

// The largest difference of a model's logits from the expected ones, relative to the largest of those; infinite if a
// logit is not finite.
inline double logit_error(const std::vector<std::vector<float>>& rows, const Expected& expected) {
  const size_t vocab = rows.front().size();
  EXPECT_EQ(expected.logits.size(), expected.rows.size() * vocab);
  double largest = 0, error = 0;
  for (size_t i = 0; i < expected.rows.size(); ++i) {
    for (size_t j = 0; j < vocab; ++j) {
      const double want = expected.logits[i * vocab + j];
      const double got = rows[static_cast<size_t>(expected.rows[i])][j];
      if (!std::isfinite(got)) return std::numeric_limits<double>::infinity();
      largest = std::max(largest, std::abs(want));
      error = std::max(error, std::abs(got - want));
    }
  }
  return error / largest;
}

inline double logit_error(const std::string& model, const Expected& expected) {
  const auto length = static_cast<int64_t>(expected.tokens.size());
  auto runner = load(
      model, {.threads = 2, .exact = true, .context = length, .rows = length, .logit_rows = length, .block_size = 16});
  return logit_error(all_logits(*runner, expected.tokens, static_cast<int32_t>(length)), expected);
}

}  // namespace millrace
