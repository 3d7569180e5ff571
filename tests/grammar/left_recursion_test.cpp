// Rules that call each other at once take the same short texts as the sets that the rules define.
#include "grammar/automaton/left_recursion.h"
#include "fresh_seed.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "grammar/automaton/pushdown.h"
#include "grammar/ebnf_parser.h"

namespace millrace {
namespace {

constexpr size_t kLongest = 5;
using Texts = std::set<std::string>;

Texts joined(const Texts& heads, const Texts& tails) {
  Texts out;
  for (const std::string& head : heads) {
    for (const std::string& tail : tails) {
      if (head.size() + tail.size() <= kLongest) out.insert(head + tail);
    }
  }
  return out;
}

struct Part {
  std::string letters;  // or
  size_t rule = 0;
  int least = 1, most = 1;
};
using Alternative = std::vector<Part>;
using Rules = std::vector<std::vector<Alternative>>;

Rules random_rules(std::mt19937& random) {
  Rules rules(1 + random() % 4);
  for (auto& rule : rules) {
    rule.resize(1 + random() % 3);
    for (Alternative& alternative : rule) {
      alternative.resize(random() % 4);
      for (Part& part : alternative) {
        if (random() % 2) part.letters = random() % 2 ? "a" : "b";
        part.rule = random() % rules.size();
        if (random() % 4) continue;
        part.least = static_cast<int>(random() % 3);
        part.most = random() % 2 ? std::max(part.least, 1) + static_cast<int>(random() % 2) : -1;
      }
    }
  }
  return rules;
}

std::string written(const Rules& rules) {
  std::string text;
  for (size_t i = 0; i < rules.size(); ++i) {
    text += (i == 0 ? "root" : "r" + std::to_string(i)) + " ::= ";
    for (const Alternative& alternative : rules[i]) {
      if (&alternative != &rules[i].front()) text += " | ";
      if (alternative.empty()) text += "\"\"";
      for (const Part& part : alternative) {
        const std::string name = part.rule == 0 ? "root" : "r" + std::to_string(part.rule);
        text += (part.letters.empty() ? name : "\"" + part.letters + "\"") + "{" + std::to_string(part.least) + "," +
                (part.most < 0 ? "" : std::to_string(part.most)) + "} ";
      }
    }
    text += "\n";
  }
  return text;
}

Texts repeated(const Texts& one, int least, int most) {
  Texts all, times{""};
  // Without a bound, more repetitions than letters add nothing.
  for (int n = 0; n <= (most < 0 ? least + static_cast<int>(kLongest) : most); ++n) {
    if (n >= least) all.insert(times.begin(), times.end());
    times = joined(times, one);
  }
  return all;
}

// The short texts of each rule: nothing at first, then what the rules make of that, until no more is added.
std::vector<Texts> short_texts(const Rules& rules) {
  std::vector<Texts> texts(rules.size());
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < rules.size(); ++i) {
      const size_t before = texts[i].size();
      for (const Alternative& alternative : rules[i]) {
        Texts taken{""};
        for (const Part& part : alternative) {
          const Texts one = part.letters.empty() ? texts[part.rule] : Texts{part.letters};
          taken = joined(taken, repeated(one, part.least, part.most));
        }
        texts[i].insert(taken.begin(), taken.end());
      }
      more = more || texts[i].size() > before;
    }
  }
  return texts;
}

bool takes(Pushdown& automaton, const std::string& text) {
  Pushdown::State state = automaton.start();
  for (const char letter : text) {
    if (state == Pushdown::kDead) return false;
    automaton.allow(1 << 24);
    state = automaton.next(state, static_cast<uint8_t>(letter));
  }
  return state != Pushdown::kDead && automaton.accepting(state);
}

void add_texts(const std::string& prefix, Texts& out) {
  out.insert(prefix);
  if (prefix.size() == kLongest) return;
  for (const char* letter : {"a", "b"}) add_texts(prefix + letter, out);
}

TEST(LeftRecursion, TakesWhatTheRulesDefine) {
  const uint32_t seed = fresh_seed();
  std::mt19937 random(seed);
  Texts all;
  add_texts("", all);
  for (int round = 0; round < 200; ++round) {
    const Rules rules = random_rules(random);
    const std::string ebnf = written(rules);
    const Texts expected = short_texts(rules)[0];
    Pushdown automaton(compile_program(parse_ebnf(ebnf)));
    for (const std::string& text : all)
      ASSERT_EQ(takes(automaton, text), expected.count(text) == 1) << "\"" << text << "\" of\n"
                                                                   << ebnf << "seed " << seed;
  }
}

TEST(LeftRecursion, IsSeenThroughOtherRules) {
  const auto remains = [](const char* ebnf) { return left_recursive(compile_program(parse_ebnf(ebnf))); };
  EXPECT_FALSE(remains("root ::= (\"a\"*)* \"b\" root | \"c\""));
  const auto taken = [](const char* ebnf, const char* text) {
    Pushdown automaton(compile_program(parse_ebnf(ebnf)));
    return takes(automaton, text);
  };
  const char* sums = "root ::= root \"+\" value | value\nvalue ::= call | [0-9]\ncall ::= value \"(\" root \")\"";
  EXPECT_TRUE(taken(sums, "1+2(3+4)(5)+6"));
  EXPECT_FALSE(taken(sums, "1+2(3+4)5"));
  EXPECT_FALSE(taken(sums, "(1)"));
  // The rest of a rule is a call of the loop as well.
  EXPECT_TRUE(taken("root ::= r | \"\"\nr ::= \"\" | r s\ns ::= \"aa\" | root \"ab\"", "aaaaab"));
}

}  // namespace
}  // namespace millrace
