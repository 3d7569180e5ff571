// The time of a token mask at the vocabulary of a large model, and the compile time of a grammar.
//   cmake --preset release -DMILLRACE_BENCH=ON && ninja -C build/release grammar_bench &&
//   build/release/bench/grammar_bench
#include <benchmark/benchmark.h>

#include <chrono>

#include "random_answer.h"

namespace millrace {
namespace {

constexpr size_t kVocabulary = 128256;

const GrammarVocabulary& vocabulary() {
  static const GrammarVocabulary words = large_vocabulary(kVocabulary);
  return words;
}

GrammarCompiler& compiler() {
  static GrammarCompiler one(vocabulary());
  return one;
}

const std::pair<const char*, GrammarSpec> kGrammars[] = {
    {"json_object", {.kind = GrammarSpec::Kind::JsonObject}},
    {"person",
     {.kind = GrammarSpec::Kind::JsonSchema,
      .text =
          R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
      "email": {"type": "string", "format": "email"}, "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 8},
      "address": {"type": "object", "properties": {"street": {"type": "string", "maxLength": 80}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
      "required": ["street", "zip"], "additionalProperties": false}}, "required": ["name", "age", "email", "tags", "address"], "additionalProperties": false})"}},
    {"tree",
     {.kind = GrammarSpec::Kind::JsonSchema,
      .text =
          R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"value": {"type": "number"}, "children": {"type": "array",
      "items": {"$ref": "#/$defs/node"}}}, "required": ["value", "children"], "additionalProperties": false}}})"}},
    {"regex", {.kind = GrammarSpec::Kind::Regex, .text = R"([A-Z][a-z]+( [a-z]+){3,20}\.)"}},
};

// Masks along random answers; slow states count as often as they occur.
void fill_masks(benchmark::State& state, const GrammarSpec& spec) {
  std::mt19937_64 random(1);
  std::vector<uint32_t> mask(mask_words(kVocabulary));
  auto constraint = compiler().compile(spec);
  int64_t steps = 0;
  double worst = 0;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    const bool masked = constraint->fill_mask(mask);
    worst =
        std::max(worst, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    state.PauseTiming();
    const int32_t token = masked ? random_token(mask, random) : 0;
    if (token >= 0 && ++steps % 200 != 0) constraint->accept(token);
    if (token < 0 || constraint->terminated() || steps % 200 == 0) constraint = compiler().compile(spec);
    state.ResumeTiming();
  }
  state.counters["worst_us"] = worst;
}

void compile_grammar(benchmark::State& state, const GrammarSpec& spec) {
  GrammarCompiler one(vocabulary(), 1);
  GrammarSpec other{.kind = GrammarSpec::Kind::Regex, .text = "a"};
  for (auto _ : state) {
    benchmark::DoNotOptimize(one.compile(spec));
    state.PauseTiming();
    one.compile(other);  // evicts the other one from the cache
    state.ResumeTiming();
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  for (const auto& [name, spec] : kGrammars) {
    const GrammarSpec& grammar = spec;
    benchmark::RegisterBenchmark((std::string("mask/") + name).c_str(), [&grammar](benchmark::State& s) {
      fill_masks(s, grammar);
    })->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark((std::string("compile/") + name).c_str(), [&grammar](benchmark::State& s) {
      compile_grammar(s, grammar);
    })->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
