#include "text/regex/regex.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "text/regex/matcher.h"
#include "text/unicode/utf8.h"
#include "vectors.h"

namespace millrace {
namespace {

using Matches = std::vector<std::pair<size_t, size_t>>;  // not the empty ones

Matches matches_of(const Regex& regex, const std::string& text) {
  Matches matches;
  regex.find_all(text, [&](size_t begin, size_t end) {
    if (end > begin) matches.emplace_back(begin, end);
  });
  return matches;
}

// Where each character of the text begins, and its end.
std::vector<size_t> character_offsets(const std::string& text) {
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.size(); i += utf8_length(text[i])) offsets.push_back(i);
  offsets.push_back(text.size());
  return offsets;
}

TEST(Regex, MatchesAsOnigurumaInHuggingFace) {
  const auto cases = read_vectors("regexes.json");
  const auto texts = cases.at(0).at("texts").get<std::vector<std::string>>();
  ASSERT_GT(texts.size(), 20u);
  for (const auto& c : cases) {
    const auto pattern = c.at("name").get<std::string>();
    const Regex regex(pattern);
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto offsets = character_offsets(texts[i]);
      Matches expected;
      for (const auto& match : c.at("matches").at(i)) {
        expected.emplace_back(offsets.at(match.at(0)), offsets.at(match.at(1)));
      }
      EXPECT_EQ(matches_of(regex, texts[i]), expected) << "pattern " << pattern << "\ntext " << texts[i];
    }
  }
}

TEST(Regex, RemembersTheSameAnswersThatItFindsByTrying) {
  for (const auto& c : read_vectors("regexes.json")) {
    const RegexProgram program = compile_regex(c.at("name").get<std::string>());
    for (const std::string& text : {std::string("x 1234567 'S ab漢字 \n\n end 12 aaaa  \n\t b__c é!? "),
                                    std::string(60, ' ') + "a", std::string(50, '7')}) {
      RegexMatcher trying(program, text), remembering(program, text, true);
      for (size_t start = 0; start <= text.size(); start += start < text.size() ? utf8_length(text[start]) : 1) {
        EXPECT_EQ(remembering.match(start), trying.match(start)) << c.at("name") << " at " << start << " of " << text;
      }
    }
  }
}

TEST(Regex, RefusesWhatItDoesNotKnowWithThePattern) {
  for (const std::string pattern :
       {"(a)\\1",    "\\X",     "(?~a)", "(?(1)a|b)", "(?<=a+)b",      "[a",          "(a",
        "a)",        "[z-a]",   "*a",    "a{3,2}",    "\\p{Nonsense}", "(?s)a",       "(?P<n>a)",
        "(?:a?b?)*", "a{1001}", "\\",    "(?=a)*",    "[a-\\d]",       "\\x{110000}", "\\ud800"}) {
    try {
      Regex regex(pattern);
      ADD_FAILURE() << pattern << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Unsupported) << pattern;
      EXPECT_THAT(error.what(), testing::HasSubstr("regex")) << pattern;
    }
  }
}

TEST(Regex, DialectsShareATreeAndDifferInSyntax) {
  struct Case {
    const char* pattern;
    bool oniguruma, ecma;
  };
  const auto accepts = [](const char* pattern, RegexDialect dialect) {
    try {
      parse_regex(pattern, dialect);
      return true;
    } catch (const Error& error) {
      const bool ecma = dialect == RegexDialect::Ecma;
      EXPECT_EQ(error.kind(), ecma ? ErrorKind::Usage : ErrorKind::Unsupported) << pattern;
      return false;
    }
  };
  for (const Case& c : std::initializer_list<Case>{{"(?>a)", true, false},
                                                   {"(?P<n>a)", false, true},
                                                   {"(?<n>a)", true, true},
                                                   {"a++", true, false},
                                                   {"a{2}{3}", true, false},
                                                   {"a{,2}", true, false},
                                                   {"{2}", true, false},
                                                   {"a{1001}", false, true},
                                                   {"a{10001}", false, false},
                                                   {"(?:a?b?)*", false, true},
                                                   {"(^)?a", true, true},
                                                   {"^*", false, false},
                                                   {"(?m)a", true, false},
                                                   {"(?i:a)", true, true},
                                                   {"(?i)a", true, true},
                                                   {"a(?i)b", true, false},
                                                   {"\\h", true, false},
                                                   {"\\p{L}", true, true},
                                                   {"\\p{Script=Greek}", false, true},
                                                   {"\\x4", true, false},
                                                   {"\\u{1F600}", false, true},
                                                   {"[]a]", true, false},
                                                   {"[]", false, false},
                                                   {"[[:alpha:]&&[^a]]", true, true},
                                                   {"[\\w-z]", true, false},
                                                   {"(a)\\1", false, false}}) {
    EXPECT_EQ(accepts(c.pattern, RegexDialect::Oniguruma), c.oniguruma) << c.pattern;
    EXPECT_EQ(accepts(c.pattern, RegexDialect::Ecma), c.ecma) << c.pattern;
  }
  const auto anchor = [](RegexDialect dialect) { return parse_regex("^a", dialect).children.at(0).anchor; };
  EXPECT_EQ(anchor(RegexDialect::Oniguruma), RegexNode::Anchor::LineBegin);
  EXPECT_EQ(anchor(RegexDialect::Ecma), RegexNode::Anchor::TextBegin);
  // Engines disagree about letters beyond ASCII: inside of a negative assertion \w has all that any engine takes.
  const auto word = [](const char* pattern) { return parse_regex(pattern, RegexDialect::Ecma).children.at(0); };
  EXPECT_FALSE(word("\\wa").set.contains(0xE9));
  EXPECT_TRUE(word("(?!\\w)a").children.at(0).set.contains(0xE9));
}

TEST(Regex, RefusesPatternsThatWouldGrowWithoutEnd) {
  std::string deep, wide = "a";
  for (int i = 0; i < 5000; ++i) deep += '(';
  for (int i = 0; i < 6; ++i) wide = "(?:" + wide + "b){900}";
  EXPECT_THROW(Regex{deep}, Error);
  EXPECT_THROW(Regex{wide}, Error);
  EXPECT_THROW(Regex{std::string(100000, 'a')}, Error);
  EXPECT_THROW(Regex{"\xff"}, Error);
}

TEST(Regex, TakesExponentialPatternsInStride) {
  const std::string text(3000, 'a');
  EXPECT_EQ(matches_of(Regex("(?:a|aa|aaa)*b"), text).size(), 0u);
  EXPECT_EQ(matches_of(Regex("(?:a?){30}a{30}$"), text).size(), 1u);
  EXPECT_EQ(matches_of(Regex("(?:(?:a+)+)+b|a"), text).size(), text.size());
  EXPECT_EQ(matches_of(Regex("(?=(?:a|aa)*b)a|a"), text).size(), text.size());
}

}  // namespace
}  // namespace millrace
