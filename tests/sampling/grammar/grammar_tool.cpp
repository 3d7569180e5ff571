// For the whole-program tests: reads {"kind", "text", "seed", "count"} from each line of stdin and writes {"answers":
// [...]} or {"error": "..."}: random walks through the masks of a grammar.
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "random_answer.h"

namespace {

using namespace millrace;
using Json = nlohmann::json;

Json answer(GrammarCompiler& compiler, const GrammarVocabulary& vocabulary, const Json& question) {
  const std::string kind = question.at("kind");
  GrammarSpec spec;
  spec.kind = kind == "schema"  ? GrammarSpec::Kind::JsonSchema
              : kind == "regex" ? GrammarSpec::Kind::Regex
                                : GrammarSpec::Kind::Ebnf;
  spec.text = question.at("text");
  std::mt19937_64 random(question.at("seed").get<uint64_t>());
  Json answers = Json::array();
  try {
    for (int i = question.at("count"); i > 0; --i) {
      const auto constraint = compiler.compile(spec);
      if (const auto text = random_answer(*constraint, vocabulary, random)) answers.push_back(*text);
    }
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
  return {{"answers", answers}};
}

}  // namespace

int main() {
  const GrammarVocabulary vocabulary = small_vocabulary();
  GrammarCompiler compiler(vocabulary);
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(compiler, vocabulary, Json::parse(line)).dump() << std::endl;
}
