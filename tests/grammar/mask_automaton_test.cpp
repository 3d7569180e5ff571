// The automaton's masks allow what its bytes allow: its short cuts change nothing.
#include "grammar/automaton/mask_automaton.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "mask_walks.h"

namespace millrace {
namespace {

TEST_F(MaskWalks, EqualBytes) {
  for (const GrammarSpec& spec : walked_grammars()) expect_same(grammar_to_ebnf(spec), {});
  EXPECT_EQ(too_complex_, 0);
}

// The text is what the comparison with XGrammar reads.
TEST_F(MaskWalks, RulesAndTheirTextAreTheSameGrammar) {
  for (const GrammarSpec& spec : walked_grammars()) {
    const auto built = std::make_shared<MaskAutomaton>(compile_program(rules_of(spec)), vocabulary_);
    expect_same(grammar_to_ebnf(spec), {}, built.get());
  }
}

TEST_F(MaskWalks, EqualBytesOnRandomRules) {
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) expect_same(random_rules(round % 2), {2, 10});
  expect_most_walks_went_on();
}

// More states than are kept: the text so far leads back to where the answer was.
TEST_F(MaskWalks, DepthBeyondWhatIsKept) {
  const auto program = compile_program(parse_ebnf("root ::= \"[\" root? \"]\""));
  const auto automaton = std::make_shared<MaskAutomaton>(program, vocabulary_);
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

TEST_F(MaskWalks, GrammarsWithoutTextAreRefused) {
  for (const char* ebnf : {"root ::= root", "root ::= root \"a\"", "root ::= a\na ::= root \"b\" | a a"})
    EXPECT_THROW(MaskAutomaton(compile_program(parse_ebnf(ebnf)), vocabulary_), Error) << ebnf;
}

}  // namespace
}  // namespace millrace
