// For the whole-program tests: reads a question from each line of stdin and writes the answer, or {"error": "..."}.
//   {"kind", "text", "seed", "count"}: random walks through the masks of a grammar, {"answers": [...]}
//   {"kind", "text", "texts": [...]}: which texts the masks let through, {"accepted": [true, ...]}
//   {"kind", "text", "seed", "masks"}: how long so many masks take at a large vocabulary, {"compile_ms", "mean_us",
//   ...}
#include <time.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "random_answer.h"

namespace {

using namespace millrace;
using Json = nlohmann::json;

constexpr size_t kLargeVocabulary = 128256;

struct Model {
  explicit Model(GrammarVocabulary words) : vocabulary(words), compiler(std::move(words)) {}
  GrammarVocabulary vocabulary;
  GrammarCompiler compiler;
};

// Of this thread: other work on the machine does not count.
double microseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

Json walk(Model& model, const GrammarSpec& spec, const Json& question) {
  std::mt19937_64 random(question.at("seed").get<uint64_t>());
  Json answers = Json::array();
  for (int i = question.at("count"); i > 0; --i) {
    const auto constraint = model.compiler.compile(spec);
    if (const auto text = random_answer(*constraint, model.vocabulary, random)) answers.push_back(*text);
  }
  return {{"answers", answers}};
}

// Byte by byte: the first 256 tokens are the bytes.
bool accepts(Model& model, const GrammarSpec& spec, const std::string& text) {
  const auto constraint = model.compiler.compile(spec);
  std::vector<uint32_t> mask(mask_words(static_cast<int64_t>(model.vocabulary.tokens.size())));
  const auto allowed = [&](int32_t token) {
    return !constraint->fill_mask(mask) || (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  };
  for (const char byte : text) {
    const auto token = static_cast<int32_t>(static_cast<unsigned char>(byte));
    if (!allowed(token)) return false;
    constraint->accept(token);
  }
  return allowed(model.vocabulary.end_tokens.front());
}

Json time_masks(Model& model, const GrammarSpec& spec, const Json& question) {
  constexpr int kAnswer = 200;
  std::mt19937_64 random(question.at("seed").get<uint64_t>());
  std::vector<uint32_t> mask(mask_words(static_cast<int64_t>(model.vocabulary.tokens.size())));
  const double begin = microseconds();
  auto constraint = model.compiler.compile(spec);
  const double compile_ms = (microseconds() - begin) / 1000;
  std::vector<double> times;
  for (int step = 0; step < question.at("masks"); ++step) {
    const double before = microseconds();
    if (!constraint->fill_mask(mask)) return {{"error", "too complex"}};
    times.push_back(microseconds() - before);
    const int32_t token = random_token(mask, random);
    if (token >= 0) constraint->accept(token);
    if (token < 0 || constraint->terminated() || token == model.vocabulary.end_tokens.front() || step % kAnswer == 0)
      constraint = model.compiler.compile(spec);
  }
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (const double time : times) sum += time;
  const auto at = [&](double part) { return times[static_cast<size_t>(part * static_cast<double>(times.size() - 1))]; };
  return {{"compile_ms", compile_ms},
          {"mean_us", sum / static_cast<double>(times.size())},
          {"p99_us", at(0.99)},
          {"worst_us", times.back()}};
}

Json answer(const Json& question) {
  static Model small(small_vocabulary());
  const std::string kind = question.at("kind");
  GrammarSpec spec;
  spec.kind = kind == "schema"   ? GrammarSpec::Kind::JsonSchema
              : kind == "regex"  ? GrammarSpec::Kind::Regex
              : kind == "object" ? GrammarSpec::Kind::JsonObject
                                 : GrammarSpec::Kind::Ebnf;
  spec.text = question.at("text");
  try {
    if (question.contains("masks")) {
      static Model large(large_vocabulary(kLargeVocabulary));
      return time_masks(large, spec, question);
    }
    if (!question.contains("texts")) return walk(small, spec, question);
    Json accepted = Json::array();
    for (const Json& text : question["texts"]) accepted.push_back(accepts(small, spec, text));
    return {{"accepted", accepted}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(Json::parse(line)).dump() << std::endl;
}
