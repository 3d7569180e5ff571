// Grammars that would take for ever, or all memory, if nobody looked: at the vocabulary of a large model each is
// refused or ready within about a second, and what is ready gives its masks soon.
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "base/error.h"
#include "random_answer.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

// The machine may be slow and busy; what these limits are for takes minutes.
#ifdef MILLRACE_SANITIZED
constexpr double kSlower = 60, kLarger = 15;
#else
constexpr double kSlower = 10, kLarger = 2;
#endif

std::string times(int count, const std::string& text, const std::string& between = "") {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i ? between : "") + text;
  return all;
}

std::string numbered(int count, const std::string& before, const std::string& after) {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i ? "," : "") + before + std::to_string(i * 7919) + after;
  return all;
}

std::vector<GrammarSpec> hostile_grammars() {
  std::string nested = "a", doubled = R"({"$ref":"#/$defs/a0","$defs":{)", chain = "root ::= a0\n";
  for (int i = 0; i < 20; ++i) nested = "(" + nested + "){1,100}";
  for (int i = 0; i < 60; ++i) {
    const std::string next = R"({"$ref":"#/$defs/a)" + std::to_string(i + 1) + "\"}";
    doubled +=
        "\"a" + std::to_string(i) + R"(":{"type":"array","prefixItems":[)" + next + "," + next + R"(],"minItems":2},)";
  }
  for (int i = 0; i < 3000; ++i) {
    const std::string n = std::to_string(i), next = "a" + std::to_string((i + 1) % 3000);
    chain += "a" + n + " ::= " + next + " \"x\" | \"y\"\n";
  }
  std::string apart;  // characters that are no ranges
  for (uint32_t code = 0x100; code < 0x100 + 2 * 5000; code += 2) apart += to_utf8(code);
  const std::string any_of = R"({"anyOf":[{"minimum":1},{"maximum":5},{"multipleOf":2},{"type":"integer"}]})";
  return {
      schema(times(5000, R"({"type":"array","items":)")),
      schema(R"({"enum": [)" + numbered(200000, "", "") + "]}"),
      schema(R"({"enum": [)" + numbered(20000, "\"value", "\"") + "]}"),
      schema(R"({"allOf":[)" + times(12, any_of, ",") + "]}"),
      schema(R"({"type":"object","additionalProperties":true,"properties":{)" + numbered(3000, "\"key", "\":{}") +
             "}}"),
      schema(R"({"type":"object","properties":{)" + numbered(3000, "\"key", "\":{\"type\":\"string\"}") + "}}"),
      schema(R"({"anyOf":[)" + numbered(1500, "{\"type\":\"string\",\"pattern\":\"^a*b", "$\"}") + "]}"),
      schema(R"({"type":"string","maxLength":90000})"),
      schema(R"({"type":"string","minLength":90000})"),
      schema(R"({"type":"string","minLength":1000000})"),
      schema(R"({"type":"string","maxLength":18,"pattern":"^[)" + apart + R"(]{0,990}x$"})"),
      schema(R"({"type":"string","maxLength":19,"pattern":"^x{0,990})" + times(7000, "()") + R"($"})"),
      schema(R"({"type":"string","maxLength":18,"pattern":"^x{0,999}-$"})"),
      schema(R"({"type":"array","maxItems":90000})"),
      schema(
          R"({"type":"array","minItems":90000,"items":{"type":"array","minItems":90000,"items":{"type":"string","minLength":90000}}})"),
      schema(doubled + R"("a60":{"type":"null"}}})"),
      schema(R"({"type":"integer","minimum":-999999999999999,"maximum":999999999999999,"multipleOf":999999937})"),
      regex(nested),
      regex("(a*)*b"),
      regex("(x+x+)+y"),
      regex("((a{0,100}){0,100}){0,100}"),
      regex("a{1000000}"),
      regex("(a|aa|aaa|a?a?a?){0,1000}"),
      regex("(a{0,90}b?){0,90}"),
      regex(times(12, "[\\s\\S]*") + "x"),
      regex("[\\s\\S]*x[\\s\\S]{0,3000}"),
      regex("(.|..|...)*x(.|..){500}"),
      regex(std::string(20000, '(')),
      ebnf("root ::= root root | \"a\""),
      ebnf("root ::= \"a\" root root | \"a\""),
      ebnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\""),
      ebnf("root ::= a | b\na ::= b \"x\" | \"y\"\nb ::= a \"z\" | b b | \"w\""),
      ebnf("root ::= ((\"a\"{0,9999}){0,9999}){0,9999}"),
      ebnf("root ::= \"a\"{1,1000000}"),
      ebnf("root ::= " + std::string(100000, '(')),
      ebnf("root ::= " + times(50, "([a-z]{0,40} | [a-y]{0,50})")),
      ebnf(chain),
  };
}

// Combinators, each of which stands for a choice of schemas: what they multiply out to must be bounded.
std::vector<GrammarSpec> hostile_combinations() {
  const auto nest = [](int depth, const std::string& before, const std::string& inside, const std::string& after) {
    return times(depth, before) + inside + times(depth, after);
  };
  // Each definition uses the next one four times.
  const auto fourfold = [](const std::string& before, const std::string& after) {
    std::string all = R"({"$ref":"#/$defs/a0","$defs":{)";
    for (int i = 0; i < 15; ++i) {
      const std::string next = R"({"$ref":"#/$defs/a)" + std::to_string(i + 1) + "\"}";
      all += "\"a" + std::to_string(i) + "\":" + before + times(4, next, ",") + after + ",";
    }
    return all + R"("a15":{"type":"object","properties":{"x":{"type":"string"}}}}})";
  };
  std::string dependencies, optional, overlapping, lists, anchors, anchored;
  for (int i = 0; i < 20; ++i) {
    const std::string n = std::to_string(i), comma = i ? "," : "";
    dependencies += comma + "\"k" + n + "\":[\"k" + std::to_string((i * 7 + 1) % 20) + "\"]";
    optional += comma + "\"k" + n + "\":{\"type\":\"string\"}";
  }
  for (int i = 0; i < 30; ++i) {
    overlapping += std::string(i ? "," : "") + R"({"type":"object","properties":{"a":{"minimum":)" + std::to_string(i) +
                   R"(},"b":{"enum":["x","y"]},"c":{"type":"string"}}})";
  }
  for (int i = 0; i < 60; ++i) {
    const std::string values =
        numbered(400, i % 2 ? "\"" + std::to_string(i) : std::to_string(i + 10), i % 2 ? "\"" : "");
    lists += (i ? ",{\"enum\":[" : "{\"enum\":[") + values + "]}";
  }
  for (int i = 0; i < 1500; ++i) {
    const std::string n = std::to_string(i), comma = i ? "," : "";
    anchors += comma + "{\"$ref\":\"#n" + n + "\"}";
    anchored += comma + "\"a" + n + R"(":{"$anchor":"n)" + n + "\"}";
  }
  const std::string condition = R"({"if":{"required":["a"],"properties":{"a":{"minimum":3}}},"then":)";
  const std::string big =
      R"({"type":"object","properties":{)" + numbered(1500, "\"key", "\":{\"type\":\"string\"}") + "}}";
  const std::string numbers = numbered(11000, "", "");
  return {
      schema(R"({"type":"object","properties":{)" + optional + R"(},"dependentRequired":{)" + dependencies + "}}"),
      schema(R"({"type":"object","properties":{)" + optional + R"(},"dependencies":{)" + dependencies + "}}"),
      schema(R"({"type":"object","properties":{)" + optional + R"(},"dependentSchemas":{)" +
             numbered(20, "\"k", R"(":{"minProperties":2})") + "}}"),
      schema(R"({"oneOf":[)" + overlapping + "]}"),
      schema(R"({"not":{"oneOf":[)" + overlapping + "]}}"),
      schema(R"({"oneOf":[)" + lists + "]}"),
      schema(nest(50, R"({"not":)", R"({"type":"object","required":["a","b"]})", "}")),
      schema(nest(50, R"({"type":"object","not":)", R"({"required":["a","b"]})", "}")),
      schema(nest(50, R"({"type":"object","properties":{"a":{"type":"string"}},"required":["b"],"not":)", "{}", "}")),
      schema(nest(30, R"({"not":{"properties":{"a":)", R"({"minimum":3})", "}}}")),
      schema(nest(25, condition, "true", R"(,"else":{"required":["b"]}})")),
      schema(
          nest(25, R"({"if":)", R"({"required":["a"]})", R"(,"then":{"required":["b"]},"else":{"required":["c"]}})")),
      schema(nest(12, R"({"oneOf":[{"required":["a"]},{"minProperties":1},{"maxProperties":5},)",
                  R"({"required":["d"]})", "]}")),
      schema(nest(6, R"({"type":"object","properties":{"p":)", R"({"oneOf":[)" + overlapping + "]}", "}}")),
      schema(fourfold(R"({"allOf":[)", "]}")),
      schema(fourfold(R"({"anyOf":[)", "]}")),
      schema(fourfold(R"({"oneOf":[)", "]}")),
      schema(fourfold(R"({"not":{"anyOf":[)", "]}}")),
      schema(fourfold(R"({"type":"object","not":{"allOf":[)", "]}}")),
      schema(fourfold(R"({"not":{"oneOf":[)", "]}}")),
      schema(fourfold(R"({"dependentSchemas":{"x":{"allOf":[)", "]}}}")),
      schema(fourfold(R"({"type":"object","properties":{"x":{"oneOf":[)", "]}}}")),
      schema(fourfold(R"({"type":"object","propertyNames":{"anyOf":[)", "]}}")),
      schema(R"({"allOf":[)" + big + R"(,{"anyOf":[)" + numbered(200, R"({"required":["key)", "\"]}") + "]}]}"),
      schema(R"({"oneOf":[)" + numbered(60, R"({"required":["key)", "\"]}") + R"(],"properties":{)" +
             numbered(1500, "\"key", "\":{\"type\":\"string\"}") + "}}"),
      schema(R"({"type":"object","required":[)" + numbered(14000, "\"k", "\"") + "]}"),
      schema(R"({"type":"object","not":{"required":[)" + numbered(14000, "\"k", "\"") + "]}}"),
      schema(R"({"type":"object","properties":{)" + numbered(14000, "\"k", "\":1") + "}}"),
      schema(R"({"enum":[)" + numbers + R"(],"not":{"enum":[)" + numbers + "]}}"),
      schema(R"({"type":"string","not":{"enum":[)" + numbered(15000, "\"", "\"") + "]}}"),
      schema(R"({"allOf":[{"enum":[)" + numbers + R"(]},{"enum":["x",)" + numbers + "]}]}"),
      schema(R"({"type":"array","uniqueItems":true,"items":{"enum":[)" + numbers + "]}}"),
      schema(R"({"enum":[)" + numbered(15000, "\"", "\"") + R"(],"pattern":"^([0-9]{2,9}|[a-z]{1,99}){1,9}$"})"),
      schema(R"({"type":"object","patternProperties":{"^([0-9]{2,9}|[a-z]{1,99}){1,9}$":{}},"properties":{)" +
             numbered(3000, "\"", "\":{}") + "}}"),
      schema(R"({"anyOf":[)" + anchors + R"(],"$defs":{)" + anchored + "}}"),
      schema(R"({"$ref":"#/$defs/a","$defs":{"a":{"oneOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}}})"),
      schema(R"({"not":{"oneOf":[{"$ref":"#"}]}})"),
      schema(R"({"oneOf":[{"type":"object","properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}},)"
             R"("required":["left","right"]},{"type":"object","properties":{"left":{"$ref":"#"}},"required":["left"]},)"
             R"({"type":"integer"}]})"),
      schema(R"({"oneOf":[{"type":"object","properties":{"l":{"$ref":"#"},"r":{"$ref":"#"}},"required":["l","r"]},)"
             R"({"type":"object","properties":{"l":{"$ref":"#"}},"required":["l"]},{"type":"null"}]})"),
      schema(R"({"enum":[)" + numbered(700, "\"a", "\"") + R"(],"pattern":"^(a?){900}$"})"),
      schema(R"({"type":"object","patternProperties":{"^(a?){900}$":{}},"properties":{)" +
             numbered(3000, "\"", "\":{}") + "}}"),
      schema(R"({"type":"object","patternProperties":{)" + numbered(1000, "\"^b", "\":{}") + R"(},"properties":{)" +
             numbered(1000, "\"", "\":{}") + "}}"),
      schema(R"({"type":"object","propertyNames":{"pattern":"^(a?){900}$"},"properties":{)" +
             numbered(4000, "\"", "\":{}") + "}}"),
      schema(R"({"type":"object","not":{"required":[)" + numbered(250, "\"k", "\"") + R"(]},"properties":{)" +
             numbered(1000, "\"k", "\":{}") + "}}"),
  };
}

// Patterns that only an automaton can say, and references with long names.
std::vector<GrammarSpec> hostile_languages() {
  const auto nest = [](int depth, const std::string& before, const std::string& inside, const std::string& after) {
    return times(depth, before) + inside + times(depth, after);
  };
  const auto text = [](const std::string& pattern, const std::string& beside = "") {
    return schema(R"({"type":"string",)" + beside + R"("pattern":")" + pattern + R"("})");
  };
  const auto avoided = [](const std::string& pattern) {
    return schema(R"({"type":"string","not":{"pattern":")" + pattern + R"("}})");
  };
  std::string apart, letters, excepted, lists, members;
  for (uint32_t i = 0; i < 5000; ++i) apart += to_utf8(0x100 + 2 * i);
  for (uint32_t i = 0; i < 8000; ++i) excepted += (i ? ",\"" : "\"") + to_utf8(0x4E00 + i) + "\"";
  for (char c = 'a'; c <= 'p'; ++c) {
    letters += std::string("(?=.*") + c + ")";
    members += (c > 'a' ? ",\"" : "\"") + std::string(1, c) + R"(":{"minimum":)" + std::to_string(c) + "}";
  }
  for (int i = 0; i < 128; ++i)
    lists += (i ? ",{\"enum\":[" : "{\"enum\":[") + numbered(250, std::to_string(i + 1), "") + "]}";
  const std::string name(120000, 'k'), unrolled = nest(10, "(?:", "(?=a)a", "){32}");
  return {
      text("^(?=a)" + nest(60, "(", "a", ")+") + "b"),
      text("^" + nest(60, "(", "a", "|b)") + "c$", R"("maxLength":20,)"),
      text("^" + letters),
      text("^(?=.)(a|b)*a(a|b){20}$"),
      text("^(?=.)(a?){500}a{500}$"),
      text("^" + nest(60, "(?!.*", "a", "x)")),
      avoided("^" + unrolled + "$a"),
      avoided("^" + nest(60, "(", "b?", "a?){0,9}") + "$"),
      avoided("[" + apart + "]{3}"),
      schema(R"({"type":"string","pattern":"a","not":{"enum":[)" + excepted + "]}}"),
      schema(R"({"type":"object","patternProperties":{)" + members + "}}"),
      schema(R"({"oneOf":[)" + lists + "]}"),
      schema(R"({"$defs":{")" + name + R"(":{"$anchor":"a","type":"null"}},"type":"array","prefixItems":[)" +
             times(8000, R"({"$ref":"#a"})", ",") + "]}"),
      schema(R"({"allOf":[{"prefixItems":[)" + times(20000, "true", ",") + R"(]},{"items":{"enum":[)" +
             numbered(12000, "", "") + "]}}]}"),
      schema(R"({"$ref":"x)" + name + R"("})"),
      schema(R"({"type":"object","properties":{")" + name + R"(":{"$ref":"x"}}})"),
  };
}

double resident_mb() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  file >> pages >> pages;
  return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

double processor_seconds() {  // others may use the machine too
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void expect_refused_or_ready_soon(const std::vector<GrammarSpec>& specs) {
  constexpr size_t kVocabulary = 128256;
  const GrammarVocabulary vocabulary = large_vocabulary(kVocabulary);
  GrammarCompiler compiler(vocabulary);
  const double before = resident_mb();
  std::vector<uint32_t> mask(mask_words(kVocabulary));
  for (const GrammarSpec& spec : specs) {
    const std::string name = spec.text.substr(0, 60);
    const double begin = processor_seconds();
    const auto seconds = [&] { return processor_seconds() - begin; };
    std::string refusal;
    std::unique_ptr<Constraint> constraint;
    try {
      constraint = compiler.compile(spec);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage);
      refusal = error.what();
    }
    EXPECT_LT(seconds(), 1.0 * kSlower) << name << " " << refusal;
    EXPECT_LT(refusal.size(), 500u) << refusal;
    if (!constraint) continue;
    const double ready = seconds();
    for (int step = 0; step < 40 && constraint->fill_mask(mask) && !constraint->terminated(); ++step) {
      int32_t token = step % 2 ? 'a' : 'x';  // bytes are the first tokens
      for (size_t i = 0; i < kVocabulary && (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) == 0; ++i)
        token = static_cast<int32_t>(i);
      if (token == vocabulary.end_tokens[0]) break;
      constraint->accept(token);
    }
    EXPECT_LT((seconds() - ready) / 40, 0.03 * kSlower) << name;
  }
  EXPECT_LT(resident_mb() - before, 1000 * kLarger) << "it keeps at most 256 MB of grammars, and sets of tokens";
}

TEST(HostileGrammar, IsRefusedOrReadySoon) { expect_refused_or_ready_soon(hostile_grammars()); }

TEST(HostileGrammar, OfLanguagesIsRefusedOrReadySoon) { expect_refused_or_ready_soon(hostile_languages()); }

TEST(HostileGrammar, OfCombinationsIsRefusedOrReadySoon) { expect_refused_or_ready_soon(hostile_combinations()); }

}  // namespace
}  // namespace millrace
