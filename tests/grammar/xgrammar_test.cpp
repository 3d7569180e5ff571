// The automaton allows what XGrammar allows for the same rules.
#include <gtest/gtest.h>

#include "mask_walks.h"
#include "xgrammar_compiler.h"

namespace millrace {
namespace {

class XGrammarWalks : public MaskWalks {
 protected:
  void expect_equal(const std::string& ebnf, Length length) {
    const auto theirs = reference_.compile(ebnf);
    expect_same(ebnf, length, theirs.get());
  }

  XGrammarCompiler reference_{*vocabulary_};
};

TEST_F(XGrammarWalks, EqualOurs) {
  for (const GrammarSpec& spec : walked_grammars()) expect_equal(grammar_to_ebnf(spec), {});
  EXPECT_EQ(too_complex_, 0);
}

TEST_F(XGrammarWalks, EqualOursOnRandomRules) {
  constexpr int kRounds = 30;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) expect_equal(random_rules(), {2, 10});
  expect_most_walks_went_on();
}

TEST_F(XGrammarWalks, EqualOursOnLeftRecursion) {
  const char* grammars[] = {
      "root ::= root \"b\" | \"a\"",
      "root ::= a \"x\" | \"y\"\na ::= root \"z\"",
      "root ::= n root \"c\" | \"a\"\nn ::= \"\" | \"b\"",
      "root ::= sum\nsum ::= sum [+-] product | product\nproduct ::= product [*/] value | value\n"
      "value ::= [0-9]+ | \"(\" root \")\" | call\ncall ::= value \"(\" root (\",\" root)* \")\"",
  };
  for (const char* grammar : grammars) expect_equal(grammar, {});
  EXPECT_EQ(too_complex_, 0);
}

}  // namespace
}  // namespace millrace
