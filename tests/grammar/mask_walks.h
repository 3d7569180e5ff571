// Random walks along the masks of a grammar, and random grammars to walk along.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fresh_seed.h"
#include "grammar/automaton/mask_automaton.h"
#include "grammar/ebnf_parser.h"
#include "grammar/spec_rules.h"
#include "random_answer.h"

namespace millrace {

// Of every kind, with classes, bounds, lists of words and recursion.
inline std::vector<GrammarSpec> walked_grammars() {
  return {
      GrammarSpec{},
      schema(R"({"type":"string","minLength":2,"maxLength":30})"),
      schema(
          R"({"properties":{"name":{"type":"string"},"n":{"type":"integer","minimum":-3,"maximum":120},"t":{"type":"array","items":{"enum":["a","ab","abc"]},"minItems":1,"maxItems":3}},"required":["n"]})"),
      schema(R"({"type":"string","format":"email"})"),
      schema(R"({"type":"string","pattern":"^(?=.*[A-Z])(?=.*[0-9])[^x]{4,40}$"})"),
      schema(R"({"type":"string","pattern":"^[^\\s]+(\\s+[^\\s]+)*$","maxLength":50})"),
      schema(R"({"type":"object","properties":{"abc":true,"b":true},"additionalProperties":{"type":"string"}})"),
      regex(R"(((?!abc|xy).)*)"),
      schema(R"({"anyOf":[{"type":"number"},{"type":"string","pattern":"^[a-c]{2,12}$"}]})"),
      regex(R"([a-z]+( [a-z]{1,9}){2,5}\.)"),
      regex(R"((ab?|b*c){0,6}[^a]{3})"),
      ebnf("root ::= \"(\" root \")\" root | \"\""),
      ebnf("root ::= (\"a\"? \"b\"?){2,4} [x-z]{0,2} # comment\n"),
  };
}

class MaskWalks : public testing::Test {
 protected:
  MaskWalks() : seed_(fresh_seed()), random_(seed_) {
    GrammarVocabulary small = small_vocabulary();
    // Words long and many enough for sets of tokens to be used, and twins.
    for (const char* word :
         {" a", "ab", "abc", " abc", "b b", "xyzzy", "\"a", "b\"", "\", \"", "name", " ab", "é", "日本"})
      small.tokens.emplace_back(word);
    for (int i = 0; i < 900; ++i) {
      std::string word = random_() % 2 ? " " : "";
      for (size_t n = 1 + random_() % (random_() % 20 ? 6 : 32); n > 0; --n)
        word += static_cast<char>('a' + random_() % (random_() % 8 ? 3 : 26));
      constexpr const char* kTails[] = {"\"", "\",", "\\n", "\\\"b", ".", " ", "7", "A", "\xC3", "\"}"};
      if (random_() % 4 == 0) word += kTails[random_() % std::size(kTails)];
      small.tokens.push_back(word);
    }
    vocabulary_ = std::make_shared<TokenVocabulary>(small.tokens, small.end_tokens);
  }

  struct Length {
    int walks = 6, steps = 40;
  };
  // Along random walks, tokens are allowed that can be said byte by byte. Where there is another to compare with, it
  // allows the same bytes and ends. (XGrammar leaves out some tokens where rules overlap, and lets surrogates pass,
  // which no text has.)
  void expect_same(const std::string& ebnf, Length length, CompiledGrammar* theirs = nullptr) {
    const GrammarProgram program = compile_program(parse_ebnf(ebnf));
    const auto ours = std::make_shared<MaskAutomaton>(program, vocabulary_);
    Pushdown bytewise(program);
    const size_t words = mask_words(vocabulary_->size());
    std::vector<uint32_t> mask(words), expected(words);
    for (int walk = 0; walk < length.walks; ++walk) {
      ++walks_;
      const auto one = ours->follow(), other = theirs ? theirs->follow() : nullptr;
      Pushdown::State state = bytewise.start();
      std::string text;
      const auto step = [&](Pushdown::State from, const std::string& bytes) {
        for (size_t i = 0; i < bytes.size() && from != Pushdown::kDead; ++i) {
          bytewise.allow(1 << 20);
          from = bytewise.next(from, static_cast<uint8_t>(bytes[i]));
        }
        return from;
      };
      for (int count = 0; count < length.steps; ++count) {
        std::fill(mask.begin(), mask.end(), 0xA5A5A5A5u);
        if (!one->fill_mask(mask)) {
          ASSERT_TRUE(one->failed()) << ebnf << " seed " << seed_;
          ++too_complex_;
          break;
        }
        if (other && !other->fill_mask(expected)) std::fill(expected.begin(), expected.end(), ~0u);
        std::vector<int32_t> allowed;
        for (int32_t token = 0; token < vocabulary_->size(); ++token) {
          const std::string& bytes = vocabulary_->bytes(token);
          const bool is_end = ends(token), surrogate = text.ends_with('\xED') || token == 0xED;
          const bool may = (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
          const bool theirs_may = (expected[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
          const bool should = theirs && (is_end || bytes.size() == 1) && !surrogate ? theirs_may
                              : is_end                                              ? bytewise.accepting(state)
                                       : !bytes.empty() && step(state, bytes) != Pushdown::kDead;
          ASSERT_EQ(may, should) << "token \"" << bytes << "\" after \"" << text << "\" of\n"
                                 << ebnf << " seed " << seed_;
          if (may && token != 0xED) allowed.push_back(token);
        }
        if (allowed.empty()) break;
        const int32_t token = allowed[random_() % allowed.size()];
        if (ends(token)) break;
        text += vocabulary_->bytes(token);
        state = step(state, vocabulary_->bytes(token));
        one->accept(token);
        if (!other) continue;
        other->accept(token);
        if (other->failed()) break;
      }
    }
  }

  // Nothing is compared behind the place where a walk is given up. Some random rules are too complex, but not half.
  void expect_most_walks_went_on() const { EXPECT_LT(too_complex_ * 2, walks_) << "seed " << seed_; }

  bool ends(int32_t token) const {
    const auto& list = vocabulary_->end_tokens();
    return std::find(list.begin(), list.end(), token) != list.end();
  }

  // Rules over few letters that call each other, behind a letter only unless they may do so at once.
  std::string random_rules(bool at_once = false) {
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
      if (at_once && random_() % 2) return name + repeat() + " " + letters();
      return letters() + " (" + letters() + " " + name + " | " + letters() + repeat() + ")" + repeat();
    };
    std::string text = "root ::= r0\n";
    for (size_t rule = 0; rule < 4; ++rule) {
      text += "r" + std::to_string(rule) + " ::= " + part();
      for (uint64_t n = random_() % 3; n > 0; --n) text += (random_() % 2 ? " | " : " ") + part();
      // So that each has an end.
      text += at_once ? " | " + letters() + "\n" : "\n";
    }
    return text;
  }

  uint64_t seed_;
  std::mt19937_64 random_;
  std::shared_ptr<TokenVocabulary> vocabulary_;
  int walks_ = 0, too_complex_ = 0;  // all, and those that were given up
};

}  // namespace millrace
