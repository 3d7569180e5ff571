// The automaton gives, bit for bit, the masks that XGrammar gives for the same rules.
#include "sampling/grammar/mask_automaton.h"

#include <gtest/gtest.h>

#include <random>

#include "random_answer.h"
#include "sampling/grammar/xgrammar_compiler.h"

namespace millrace {
namespace {

class MaskAutomatonTest : public testing::Test {
 protected:
  MaskAutomatonTest() : seed_(std::random_device()()), random_(seed_) {
    GrammarVocabulary small = small_vocabulary();
    // Words long and many enough for sets of tokens to be used, and twins.
    for (const char* word :
         {" a", "ab", "abc", " abc", "b b", "xyzzy", "\"a", "b\"", "\", \"", "name", " ab", "é", "日本"})
      small.tokens.emplace_back(word);
    for (int i = 0; i < 900; ++i) {
      std::string word = random_() % 2 ? " " : "";
      for (size_t n = 1 + random_() % (random_() % 20 ? 6 : 24); n > 0; --n)
        word += static_cast<char>('a' + random_() % (random_() % 8 ? 3 : 26));
      small.tokens.push_back(word);
    }
    vocabulary_ = std::make_shared<TokenVocabulary>(small.tokens, small.end_tokens);
    reference_ = std::make_unique<XGrammarCompiler>(*vocabulary_);
  }

  // Walks at random, and now and then towards the end.
  void expect_same(const std::string& ebnf, int walks = 6, int steps = 40) {
    std::optional<GrammarProgram> program = compile_program(ebnf);
    ASSERT_TRUE(program) << ebnf;
    const auto ours = std::make_shared<MaskAutomaton>(std::move(*program), vocabulary_);
    const auto theirs = reference_->compile(ebnf);
    const size_t words = mask_words(vocabulary_->size());
    std::vector<uint32_t> mask(words), expected(words);
    for (int walk = 0; walk < walks; ++walk) {
      const auto one = ours->follow(), other = theirs->follow();
      std::string text;
      for (int step = 0; step < steps; ++step) {
        std::fill(mask.begin(), mask.end(), 0xA5A5A5A5u);
        ASSERT_TRUE(one->fill_mask(mask));
        if (!other->fill_mask(expected)) return;  // all tokens, which ours says bit by bit
        std::vector<int32_t> allowed;
        for (int32_t token = 0; token < vocabulary_->size(); ++token) {
          const auto bit = [&](const auto& in) { return in[static_cast<size_t>(token) / 32] >> (token % 32) & 1; };
          ASSERT_EQ(bit(mask), bit(expected))
              << "token \"" << vocabulary_->bytes(token) << "\" after \"" << text << "\" of\n"
              << ebnf << " seed " << seed_;
          if (bit(mask)) allowed.push_back(token);
        }
        if (allowed.empty()) break;
        const int32_t token = allowed[random_() % allowed.size()];
        const auto& ends = vocabulary_->end_tokens();
        if (std::find(ends.begin(), ends.end(), token) != ends.end()) break;
        text += vocabulary_->bytes(token);
        one->accept(token);
        other->accept(token);
      }
    }
  }

  // Rules over few letters that call each other only behind a letter.
  std::string random_rules() {
    const auto pick = [&](auto... options) {
      const std::string all[] = {options...};
      return all[random_() % sizeof...(options)];
    };
    const auto letters = [&] {
      return pick("\"a\"", "\"ab\"", "\"b c\"", "[a-c]", "[^b]", "[a-z ]", "\"\\\"\"", "[é日x]");
    };
    const auto repeat = [&] { return pick("", "", "", "*", "+", "?", "{2}", "{0,3}", "{1,20}", "{2,}"); };
    const auto part = [&] {
      if (random_() % 3) return letters() + repeat();
      const std::string name = "r" + std::to_string(random_() % 4);
      return letters() + " (" + letters() + " " + name + " | " + letters() + repeat() + ")" + repeat();
    };
    std::string text = "root ::= r0\n";
    for (size_t rule = 0; rule < 4; ++rule) {
      text += "r" + std::to_string(rule) + " ::= " + part();
      for (uint64_t n = random_() % 3; n > 0; --n) text += (random_() % 2 ? " | " : " ") + part();
      text += "\n";
    }
    return text;
  }

  uint64_t seed_;
  std::mt19937_64 random_;
  std::shared_ptr<TokenVocabulary> vocabulary_;
  std::unique_ptr<XGrammarCompiler> reference_;
};

TEST_F(MaskAutomatonTest, EqualsXGrammar) {
  const GrammarSpec specs[] = {
      GrammarSpec{},
      schema(R"({"type":"string","minLength":2,"maxLength":30})"),
      schema(
          R"({"properties":{"name":{"type":"string"},"n":{"type":"integer","minimum":-3,"maximum":120},"t":{"type":"array","items":{"enum":["a","ab","abc"]},"minItems":1,"maxItems":3}},"required":["n"]})"),
      schema(R"({"type":"string","format":"email"})"),
      schema(R"({"anyOf":[{"type":"number"},{"type":"string","pattern":"^[a-c]{2,12}$"}]})"),
      regex(R"([a-z]+( [a-z]{1,9}){2,5}\.)"),
      regex(R"((ab?|b*c){0,6}[^a]{3})"),
      ebnf("root ::= \"(\" root \")\" root | \"\""),
      ebnf("root ::= (\"a\"? \"b\"?){2,4} [x-z]{0,2} # comment\n"),
  };
  for (const GrammarSpec& spec : specs) expect_same(grammar_to_ebnf(spec));
}

TEST_F(MaskAutomatonTest, EqualsXGrammarOnRandomRules) {
  for (int round = 0; round < 60 && !HasFailure(); ++round) expect_same(random_rules(), 2, 15);
}

// More states than are kept: the text so far leads back to where the answer was.
TEST_F(MaskAutomatonTest, DepthBeyondWhatIsKept) {
  const auto program = compile_program("root ::= \"[\" root? \"]\"");
  const auto automaton = std::make_shared<MaskAutomaton>(*program, vocabulary_);
  const auto deep = automaton->follow(), beside = automaton->follow();
  std::vector<uint32_t> mask(mask_words(vocabulary_->size()));
  const auto allows = [&](Constraint& one, int32_t token) {
    EXPECT_TRUE(one.fill_mask(mask));
    return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  };
  beside->accept('[');
  constexpr int kDepth = 300000;
  for (int i = 0; i < kDepth; ++i) deep->accept('[');
  EXPECT_LT(automaton->memory(), 64u << 20);
  EXPECT_TRUE(allows(*beside, ']'));
  for (int i = 0; i < kDepth; ++i) deep->accept(']');
  EXPECT_FALSE(allows(*deep, ']'));
  EXPECT_TRUE(allows(*deep, vocabulary_->end_tokens()[0]));
}

TEST_F(MaskAutomatonTest, LeftRecursionThroughOtherRulesIsLeftToXGrammar) {
  EXPECT_FALSE(compile_program("root ::= a \"x\" | \"y\"\na ::= root \"z\""));
  EXPECT_FALSE(compile_program("root ::= n root | \"a\"\nn ::= \"\" | \"b\""));
  EXPECT_TRUE(compile_program("root ::= root \"b\" | \"a\""));
  EXPECT_TRUE(compile_program("root ::= (\"a\"*)* \"b\" root | \"c\""));
}

}  // namespace
}  // namespace millrace
