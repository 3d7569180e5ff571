// Tokenization takes linear time for adversarial texts.
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>

#include "vectors.h"

namespace millrace {
namespace {

std::string repeated(const std::string& unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

// CPU time of this process, independent of other load on the machine.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_for(const Tokenizer& tokenizer, const std::string& text) {
  double best = 1e9;
  for (int i = 0; i < 2; ++i) {
    const double start = processor_seconds();
    const auto ids = tokenizer.encode(text);
    best = std::min(best, processor_seconds() - start);
    EXPECT_LE(ids.size(), 4 * text.size() + 4);
  }
  return best;
}

void expect_linear(const Tokenizer& tokenizer, const std::string& name) {
  constexpr size_t kBytes = 8 << 10;
  const std::string units[] = {" ",    "a",  "A",  "aA",  "1",  "\n",           " \n",
                               "\t ",  "'s", "<",  "<s>", "漢", "\u0301\u0316", "👨‍👩‍👧",
                               "\xff", "▁",  " a", "."};
  for (const std::string& unit : units) {
    for (const std::string& end : {std::string(), std::string("x")}) {
      const double small = seconds_for(tokenizer, repeated(unit, kBytes) + end),
                   large = seconds_for(tokenizer, repeated(unit, 8 * kBytes) + end);
      // The large text is 8 times as long: quadratic time would give a factor of 64. n log n and cache misses exceed 8.
      EXPECT_LT(large, 24 * small + 0.01) << name << ", text of '" << unit << "' and '" << end << "'";
      EXPECT_LT(large, 5.0) << name << ", text of '" << unit << "'";
    }
  }
}

TEST(LinearTime, EveryPreTokenizer) {
  const auto base = read_vectors("byte_level_bpe.json").at("tokenizer");
  for (const auto& variant : read_vectors("byte_level_variants.json")) {
    const auto name = variant.at("name").get<std::string>();
    if (name != "llama-bpe" && name != "deepseek-llm" && name != "deepseek-v3" && name != "falcon" &&
        name != "tekken" && name != "smollm")
      continue;  // the other variants combine the same steps
    nlohmann::json json = base;
    json["pre_tokenizer"] = variant.at("pre_tokenizer");
    json["normalizer"] = variant.at("normalizer");
    expect_linear(*tokenizer_from_json(json.dump(), ""), name);
  }
}

class LinearTimeOf : public testing::TestWithParam<const char*> {};

TEST_P(LinearTimeOf, Tokenizer) {
  expect_linear(*tokenizer_from_json(read_vectors(GetParam()).at("tokenizer").dump(), ""), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, LinearTimeOf,
                         testing::Values("sentencepiece_bpe.json", "unigram.json", "unigram_bytes.json",
                                         "wordpiece.json", "roberta.json", "word_suffix_bpe.json"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find('.'));
                         });

TEST(LinearTime, SentencePieceByScores) {
  expect_linear(*tokenizer_from_gguf(parse_gguf_vocabulary(read_vectors("sentencepiece_bpe.json").at("gguf").dump())),
                "GGUF llama");
}

TEST(LinearTime, RegexesThatBacktrackOverAndOver) {
  nlohmann::json json = read_vectors("byte_level_bpe.json").at("tokenizer");
  for (const char* pattern : {R"(\d{1,3}(?=(?:\d{3})*\b))", R"((?=(\d{3})+(?!\d)))", R"(\s+$|\w+\s*=)",
                              R"((?:a|aa)*b|\S)", R"((?>\s+)!|(?>a*)b)"}) {
    json["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    expect_linear(*tokenizer_from_json(json.dump(), ""), pattern);
  }
}

}  // namespace
}  // namespace millrace
