#include "cli/cascade_calibration.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/environment.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/write_file.h"
#include "cli/cascade_prompts.h"
#include "cli/read_text.h"
#include "engine/engine.h"
#include "engine/fingerprint.h"
#include "engine/text_model.h"

namespace millrace {
namespace {

constexpr int32_t kAnswerTokens = 64;  // of each answer, at most
constexpr int64_t kAtOnce = 8;

using Prompts = std::vector<std::vector<int32_t>>;

Prompts read_prompts(const std::string& file, const TextModel& text) {
  const std::string lines = file.empty() ? std::string(kCascadePrompts) : read_file_or_stdin(file);
  Prompts prompts;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    std::string line = lines.substr(at, end - at);
    at = end + 1;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    if (text.chat) {
      const nlohmann::ordered_json message{{"role", "user"}, {"content", line}};
      const auto chat =
          render_chat(text, {{"messages", nlohmann::ordered_json::array({message})}, {"add_generation_prompt", true}});
      prompts.push_back(encode_chat(*text.tokenizer, chat));
    } else {
      prompts.push_back(text.tokenizer->encode(line));
    }
  }
  if (prompts.empty()) fail(ErrorKind::Usage, "--cascade-prompts {}: has no prompt; write one per line", file);
  return prompts;
}

// Prompts enter as tokens: another template or tokenizer gives other scores.
std::filesystem::path file_for(const WeightSource& source, const ModelOptions& model, const Prompts& prompts) {
  uint64_t hash = fingerprint(source);
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };  // FNV-1a
  add(kAnswerTokens);
  add(model.exact ? 1 : 0);
  for (const char c : model.kv_type) add(static_cast<unsigned char>(c));
  for (const auto& prompt : prompts) {
    add(prompt.size());
    for (const int32_t token : prompt) add(static_cast<uint32_t>(token));
  }
  return environment().cache / "plans" / fmt::format("cascade-{:016x}.json", hash);
}

// None if the file is missing or not of so many prompts. An answer without tokens is null.
std::optional<std::vector<double>> read_means(const std::filesystem::path& file, size_t prompts) {
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const nlohmann::json json = read_json(text);
  if (!json.is_object() || !json.contains("means") || !json["means"].is_array()) return std::nullopt;
  std::vector<double> means;
  for (const auto& mean : json["means"]) {
    if (!mean.is_null() && !(mean.is_number() && mean.get<double>() <= 0)) return std::nullopt;
    means.push_back(mean.is_null() ? -std::numeric_limits<double>::infinity() : mean.get<double>());
  }
  return means.size() == prompts ? std::optional(means) : std::nullopt;
}

void save_means(const std::filesystem::path& file, const std::string& model, const std::vector<double>& means) {
  nlohmann::json list = nlohmann::json::array();
  for (const double mean : means) list.push_back(std::isfinite(mean) ? nlohmann::json(mean) : nlohmann::json());
  write_file(file, json_text(nlohmann::json{{"model", model}, {"means", list}}) + "\n");
}

std::vector<double> measure(const std::shared_ptr<const WeightSource>& source, const ModelOptions& model,
                            const TextModel& text, const Prompts& prompts) {
  LoadOptions options = load_options(model);
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  options.context = static_cast<int64_t>(longest) + kAnswerTokens;
  options.sequences = kAtOnce;
  const auto runner = load_runner(source, options);
  Engine engine(*runner);
  struct Sum {
    double logprobs = 0;
    int64_t tokens = 0;
  };
  std::vector<Sum> sums(prompts.size());
  std::map<RequestId, size_t> prompt_of;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request request{.prompt = prompts[i], .max_tokens = kAnswerTokens, .end_tokens = text.end_tokens};
    request.sampling.temperature = 0;
    request.sampling.logprobs = 0;
    prompt_of[engine.submit(std::move(request))] = i;
  }
  Progress bar("calibrating the cascade", std::ssize(prompts));
  int64_t done = 0;
  std::string error;
  while (engine.step([&](const Emission& e) {
    Sum& sum = sums[prompt_of.at(e.id)];
    if (e.logprobs != nullptr && !e.is_end) {
      sum.logprobs += e.logprobs->chosen.logprob;
      ++sum.tokens;
    }
    if (!e.error.empty()) error = e.error;
    if (e.finish != FinishReason::None) bar.set(++done);
  })) {
    throw_if_interrupted();
    if (!error.empty()) fail(ErrorKind::BadFile, "{}", error);
  }
  std::vector<double> means;
  for (const Sum& sum : sums) {
    means.push_back(sum.tokens > 0 ? sum.logprobs / double(sum.tokens) : -std::numeric_limits<double>::infinity());
  }
  return means;
}

}  // namespace

std::vector<double> answer_means(const ModelOptions& model, const std::string& file) {
  const auto source = open_model(model);
  const TextModel text = load_text_model(*source);
  const Prompts prompts = read_prompts(file, text);
  const std::filesystem::path kept = file_for(*source, model, prompts);
  if (auto means = read_means(kept, prompts.size())) return *means;
  const std::vector<double> means = measure(source, model, text, prompts);
  try {
    save_means(kept, source->origin(), means);
  } catch (const Error& e) {
    log().warn("the calibration of the cascade is not kept, so that the next start measures again: {}", e.what());
  }
  return means;
}

}  // namespace millrace
