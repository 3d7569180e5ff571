// Whatever a model prefers, its answers are what the grammar says.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/error.h"
#include "fresh_seed.h"
#include "random_answer.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

class Grammar : public testing::Test {
 protected:
  Grammar() : vocabulary_(small_vocabulary()), compiler_(vocabulary_), seed_(fresh_seed()), random_(seed_) {}

  // Answers of many walks; each of them ends, at least one must.
  std::vector<std::string> answers(const GrammarSpec& spec, int count = 60) {
    std::vector<std::string> texts;
    for (int i = 0; i < count; ++i) {
      const auto constraint = compiler_.compile(spec);
      if (auto text = random_answer(*constraint, vocabulary_, random_)) texts.push_back(*text);
    }
    EXPECT_FALSE(texts.empty()) << "seed " << seed_;
    return texts;
  }

  template <class Check>
  void expect_all(const char* text, Check check) {
    for (const std::string& answer : answers(schema(text))) {
      const Json value = Json::parse(answer, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << answer << " of " << text << " seed " << seed_;
      ASSERT_TRUE(check(value)) << answer << " of " << text << " seed " << seed_;
    }
  }

  bool accepts(const GrammarSpec& spec, const std::string& text) {
    const auto constraint = compiler_.compile(spec);
    std::vector<uint32_t> mask(mask_words(static_cast<int64_t>(vocabulary_.tokens.size())));
    const auto allowed = [&](int32_t token) {
      if (!constraint->fill_mask(mask)) return true;
      return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
    };
    for (const char byte : text) {
      const int32_t token = static_cast<unsigned char>(byte);
      if (!allowed(token)) return false;
      constraint->accept(token);
    }
    return allowed(vocabulary_.end_tokens[0]);
  }

  std::string refusal(const GrammarSpec& spec) {
    try {
      compiler_.compile(spec);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage);
      return error.what();
    }
    return "accepted";
  }

  GrammarVocabulary vocabulary_;
  GrammarCompiler compiler_;
  uint64_t seed_;
  std::mt19937_64 random_;
};

TEST_F(Grammar, AnyObject) {
  for (const std::string& answer : answers({.kind = GrammarSpec::Kind::JsonObject})) {
    EXPECT_TRUE(Json::parse(answer, nullptr, false).is_object()) << answer;
  }
  EXPECT_TRUE(accepts({}, "{\"a\": [1, {\"b\": null}, \"\\n\"], \"c\": -1.5e3}"));
  EXPECT_FALSE(accepts({}, "[1]"));
  EXPECT_FALSE(accepts({}, "{\"a\": 01}"));
  EXPECT_FALSE(accepts({}, "{\"a\": \"\t\"}"));
}

TEST_F(Grammar, WhitespaceIsBounded) {
  EXPECT_TRUE(accepts({}, "{\n    \"a\": 1\n}"));
  EXPECT_FALSE(accepts({}, "{" + std::string(100, ' ') + "}"));
  EXPECT_FALSE(accepts({}, "{" + std::string(10, '\n') + "}"));
}

TEST_F(Grammar, Objects) {
  expect_all(
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]})",
      [](const Json& value) {
        return value["a"].is_number_integer() && (!value.contains("b") || value["b"].is_string()) && value.size() <= 2;
      });
  expect_all(
      R"({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}})",
      [](const Json& value) {
        for (const auto& item : value.items()) {
          if (item.key() == "a" ? !item.value().is_number_integer() : !item.value().is_string()) return false;
        }
        return true;
      });
  const auto open = schema(
      R"({"type": "object", "properties": {"ab": {"type": "integer"}}, "additionalProperties": {"type": "string"}})");
  EXPECT_TRUE(accepts(open, R"({"ab": 1, "a": "", "abc": "x", "": ""})"));
  EXPECT_FALSE(accepts(open, R"({"ab": "x"})"));
  EXPECT_FALSE(accepts(open, R"({"ab": 1, "ab": "x"})"));
  EXPECT_TRUE(accepts(schema(R"({"properties": {}})"), "{}"));
}

TEST_F(Grammar, OptionalMembersInEveryCombination) {
  const auto spec = schema(R"({"properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"]})");
  EXPECT_TRUE(accepts(spec, R"({"b": 1})"));
  EXPECT_TRUE(accepts(spec, R"({"a": 1, "b": 1})"));
  EXPECT_TRUE(accepts(spec, R"({"b": 1, "c": 1})"));
  EXPECT_FALSE(accepts(spec, R"({"a": 1, "c": 1})"));
  EXPECT_FALSE(accepts(spec, R"({"a": 1})"));
  EXPECT_FALSE(accepts(spec, R"({"b": 1,})"));
  EXPECT_FALSE(accepts(spec, R"({,"b": 1})"));
}

TEST_F(Grammar, Arrays) {
  expect_all(R"({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4})",
             [](const Json& value) { return value.size() >= 2 && value.size() <= 4 && value[1].is_boolean(); });
  expect_all(
      R"({"type": "array", "prefixItems": [{"type": "null"}, {"type": "integer"}], "items": {"type": "string"}, "minItems": 1, "maxItems": 3})",
      [](const Json& value) {
        return value[0].is_null() && value.size() <= 3 && (value.size() < 2 || value[1].is_number_integer());
      });
  EXPECT_TRUE(accepts(schema(R"({"type": "array"})"), "[]"));
  EXPECT_FALSE(accepts(schema(R"({"type": "array", "items": false})"), "[1]"));
}

TEST_F(Grammar, IntegerBounds) {
  for (int round = 0; round < 40; ++round) {
    const int64_t a = static_cast<int64_t>(random_() % 20000) - 10000,
                  b = a + static_cast<int64_t>(random_() % (1 + random_() % 3000));
    const auto spec = schema(Json{{"type", "integer"}, {"minimum", a}, {"maximum", b}}.dump());
    for (const int64_t value : {a - 1, a, a + 1, (a + b) / 2, b - 1, b, b + 1, a * 10, b * 10, -a, -b, int64_t{0}}) {
      ASSERT_EQ(accepts(spec, std::to_string(value)), value >= a && value <= b)
          << a << ".." << b << ": " << value << " seed " << seed_;
    }
  }
  EXPECT_FALSE(accepts(schema(R"({"type": "integer", "exclusiveMinimum": 3})"), "3"));
  EXPECT_TRUE(accepts(schema(R"({"type": "integer", "exclusiveMinimum": 3})"), "40"));
  EXPECT_THAT(refusal(schema(R"({"type": "integer", "minimum": 3, "maximum": 2})")), HasSubstr("no value matches"));
}

TEST_F(Grammar, ZeroBetweenBoundsHasNoSign) {
  for (const char* bounds : {R"("minimum": 0)", R"("minimum": -0.0)", R"("minimum": -1, "maximum": 1)"}) {
    const auto spec = schema(fmt::format(R"({{"type": "number", {}}})", bounds));
    EXPECT_TRUE(accepts(spec, "0") && accepts(spec, "0.0")) << bounds;
    EXPECT_FALSE(accepts(spec, "-0") || accepts(spec, "-0.0")) << bounds;
  }
}

TEST_F(Grammar, NumberBounds) {
  for (const char* bound : {"minimum", "exclusiveMinimum"}) {  // without another bound: many rules, all of them options
    const auto spec = schema(Json{{"type", "number"}, {bound, 0}}.dump());
    EXPECT_TRUE(accepts(spec, "0.5") && accepts(spec, "123456789.25")) << bound;
    EXPECT_FALSE(accepts(spec, "-1")) << bound;
    EXPECT_EQ(accepts(spec, "0"), bound == std::string("minimum"));
  }
  for (int round = 0; round < 40; ++round) {
    const double a = std::round(std::uniform_real_distribution<>(-50, 50)(random_) * 1000) / 1000;
    const double b =
        a + std::round(std::uniform_real_distribution<>(0, random_() % 2 ? 0.5 : 80)(random_) * 1000) / 1000;
    const auto spec = schema(Json{{"type", "number"}, {"minimum", a}, {"exclusiveMaximum", b + 0.001}}.dump());
    for (const double value : {a, (a + b) / 2, b, a - 0.01, b + 0.01, -a, 0.0, 7.25, -3.5}) {
      const double exact = std::stod(fmt::format("{:.4f}", value)) + 0.0;  // which takes the sign from a zero
      const std::string text = Json(exact).dump();
      if (text.find('e') != std::string::npos) continue;
      ASSERT_EQ(accepts(spec, text), exact >= a && exact < b + 0.001)
          << a << ".." << b << ": " << text << " seed " << seed_;
    }
    for (const std::string& answer : answers(spec, 10)) {
      const double value = std::stod(answer);
      ASSERT_TRUE(value >= a && value < b + 0.001) << answer << " of " << a << ".." << b;
    }
  }
}

TEST_F(Grammar, MultiplesAreExact) {
  for (const int64_t multiple : {7, 2, 50, 64, 1000, 30}) {
    const std::string text = Json{{"type", "integer"}, {"multipleOf", multiple}}.dump();
    expect_all(text.c_str(), [&](const Json& value) { return value.get<int64_t>() % multiple == 0; });
    EXPECT_TRUE(accepts(schema(text), std::to_string(-3 * multiple))) << multiple;
    EXPECT_FALSE(accepts(schema(text), std::to_string(3 * multiple + 1))) << multiple;
  }
  expect_all(R"({"type": "integer", "multipleOf": 5, "minimum": -7, "maximum": 12})",
             [](const Json& value) { return value >= -7 && value <= 12 && value.get<int>() % 5 == 0; });
}

TEST_F(Grammar, Strings) {
  expect_all(R"({"type": "string", "minLength": 2, "maxLength": 4})", [](const Json& value) {
    const auto text = value.get<std::string>();
    const auto length = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
    return length >= 2 && length <= 4;
  });
  const auto pattern = schema(R"({"type": "string", "pattern": "^[a-z]+(-[0-9]{2})?$"})");
  EXPECT_TRUE(accepts(pattern, "\"abc-12\""));
  EXPECT_FALSE(accepts(pattern, "\"abc-1\""));
  EXPECT_TRUE(accepts(schema(R"({"type": "string", "pattern": "b"})"), "\"abc\""));
  EXPECT_TRUE(accepts(schema(R"({"type": "string", "pattern": "^a|b$"})"), "\"xb\""));
  EXPECT_FALSE(accepts(schema(R"({"type": "string", "pattern": "^a|b$"})"), "\"bx\""));
  EXPECT_TRUE(accepts(schema(R"({"type": "string", "pattern": "^.\"$"})"), "\"x\\\"\""));
  EXPECT_TRUE(accepts(schema(R"({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3})"), "\"abc\""));
  EXPECT_FALSE(accepts(schema(R"({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3})"), "\"abcd\""));
}

TEST_F(Grammar, Formats) {
  const std::pair<const char*, const char*> formats[] = {{"date", R"(\d{4}-\d\d-\d\d)"},
                                                         {"uuid", R"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})"},
                                                         {"ipv4", R"(\d+(\.\d+){3})"},
                                                         {"email", R"([^@]+@[^@]+\.[^@]+)"}};
  for (const auto& [format, shape] : formats) {
    for (const std::string& answer : answers(schema(Json{{"type", "string"}, {"format", format}}.dump()), 20)) {
      EXPECT_TRUE(std::regex_match(Json::parse(answer).get<std::string>(), std::regex(shape))) << answer;
    }
  }
}

TEST_F(Grammar, FormatsWithLengths) {
  for (const char* format :
       {"date-time", "date",          "time",      "duration",     "email",         "hostname",
        "ipv4",      "ipv6",          "uuid",      "uri",          "uri-reference", "uri-template",
        "iri",       "iri-reference", "idn-email", "idn-hostname", "json-pointer",  "relative-json-pointer",
        "regex",     "byte",          "password"}) {
    for (const int most : {40, 64, 100, 255, 1000, 2048}) {
      for (const std::string& answer :
           answers(schema(Json{{"type", "string"}, {"format", format}, {"maxLength", most}}.dump()), 2)) {
        EXPECT_LE(count_characters(Json::parse(answer).get<std::string>()), size_t(most))
            << format << " seed " << seed_;
      }
    }
  }
  for (const char* format : {"json-pointer", "relative-json-pointer", "uri", "uri-template", "iri", "idn-email"}) {
    const Json wanted{{"type", "string"}, {"format", format}, {"minLength", 30}, {"maxLength", 60}};
    for (const std::string& answer : answers(schema(wanted.dump()), 3)) {
      const size_t size = count_characters(Json::parse(answer).get<std::string>());
      EXPECT_TRUE(size >= 30 && size <= 60) << answer << " seed " << seed_;
    }
  }
}

TEST_F(Grammar, NamesDoNotRepeat) {
  const auto once = [&](const GrammarSpec& spec) {
    EXPECT_TRUE(accepts(spec, R"({"y":3,"x":2})"));
    EXPECT_TRUE(accepts(spec, R"({"y":3,"yy":2,"":1})"));
    EXPECT_FALSE(accepts(spec, R"({"y":3,"y":2})"));
    EXPECT_FALSE(accepts(spec, R"({"a\"":3,"b":1,"a\"":2})"));
  };
  once({.kind = GrammarSpec::Kind::JsonObject});
  once(schema(R"({"type": "object", "additionalProperties": {"type": "integer"}})"));
  EXPECT_TRUE(accepts({.kind = GrammarSpec::Kind::JsonObject}, R"({"y":{"y":1},"z":[{"y":1},{"y":"y"}]})"));
  EXPECT_FALSE(accepts({.kind = GrammarSpec::Kind::JsonObject}, R"({"y":{"y":1},"y":1})"));
  EXPECT_FALSE(accepts({.kind = GrammarSpec::Kind::JsonObject}, R"({"z":[{"y":1,"y":2}]})"));
  // Whole tokens such as `","y":`; a vocabulary of few letters makes repeated names likely.
  GrammarVocabulary letters{.tokens = {"{", "}", "\"", "a", "b", ":", ",", "1", "\"a\":", "{\"b\":1,\"a\":", ",\"a\":1",
                                       "\"b", "a\":", "b\":1}", "\",\"a\":\"", ""},
                            .end_tokens = {15}};
  GrammarCompiler compiler(letters);
  int ended = 0;
  for (int i = 0; i < 400; ++i) {
    const auto constraint = compiler.compile({.kind = GrammarSpec::Kind::JsonObject});
    const auto text = random_answer(*constraint, letters, random_, 60);
    if (!text) continue;
    ++ended;
    std::vector<std::set<std::string>> names;
    const auto note = [&](int, Json::parse_event_t event, Json& value) {
      if (event == Json::parse_event_t::object_start) names.emplace_back();
      if (event == Json::parse_event_t::key) {
        EXPECT_TRUE(names.back().insert(value.get<std::string>()).second) << *text;
      }
      if (event == Json::parse_event_t::object_end) names.pop_back();
      return true;
    };
    EXPECT_TRUE(Json::parse(*text, note).is_object());
  }
  EXPECT_GT(ended, 0);
}

// A pattern may leave no other name: a repeated one is then allowed instead of failing.
TEST_F(Grammar, AnswersEndWhereNamesRunOut) {
  answers(
      schema(R"({"type": "object", "patternProperties": {"^[a-c]$": {"const": 1}}, "additionalProperties": false})"),
      30);
}

TEST_F(Grammar, EnumsAndTypes) {
  expect_all(R"({"enum": ["a", 1, null, {"b": [true]}]})",
             [](const Json& value) { return value == "a" || value == 1 || value.is_null() || value.is_object(); });
  expect_all(R"({"type": ["integer", "null"]})",
             [](const Json& value) { return value.is_null() || value.is_number_integer(); });
  expect_all(R"({"type": "string", "enum": ["a", 1]})", [](const Json& value) { return value == "a"; });
  EXPECT_TRUE(accepts(schema(R"({"const": "\u00e9\n\""})"), "\"\xC3\xA9\\n\\\"\""));
}

TEST_F(Grammar, Combinators) {
  expect_all(R"({"anyOf": [{"type": "integer", "minimum": 5, "maximum": 9}, {"type": "boolean"}]})",
             [](const Json& value) { return value.is_boolean() || (value >= 5 && value <= 9); });
  expect_all(
      R"({"allOf": [{"properties": {"a": {"type": "number"}}, "required": ["a"]}, {"properties": {"a": {"maximum": 3, "type": "integer"}, "b": {"type": "null"}}, "required": ["b"]}], "type": "object"})",
      [](const Json& value) {
        return value["a"].is_number_integer() && value["a"] <= 3 && value["b"].is_null() && value.size() == 2;
      });
  expect_all(
      R"({"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"], "anyOf": [{"properties": {"k": {"const": "x"}}}, {"properties": {"k": {"const": "y"}, "z": {"type": "null"}}}]})",
      [](const Json& value) { return value["k"] == "x" || value["k"] == "y"; });
  expect_all(
      R"({"oneOf": [{"type": "object", "properties": {"t": {"const": "a"}, "x": {"type": "integer"}}, "required": ["t", "x"]}, {"type": "object", "properties": {"t": {"const": "b"}}, "required": ["t"]}]})",
      [](const Json& value) { return value["t"] == "a" ? value["x"].is_number_integer() : value["t"] == "b"; });
  expect_all(R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})",
             [](const Json& value) { return value.get<double>() != std::floor(value.get<double>()); });
  EXPECT_THAT(refusal(schema(R"({"allOf": [{"type": "integer"}, {"type": "string"}]})")), HasSubstr("no value"));
}

TEST_F(Grammar, References) {
  const char* tree =
      R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": false}}})";
  expect_all(tree, [](const Json& value) {
    const Json* at = &value;
    while (!at->is_null()) {
      if (!(*at)["v"].is_number_integer()) return false;
      at = &(*at)["next"];
    }
    return true;
  });
  EXPECT_THAT(refusal(schema(R"({"$ref": "#"})")), HasSubstr("no value"));
  EXPECT_THAT(refusal(schema(R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})")),
              HasSubstr("no value"));
  EXPECT_THAT(refusal(schema(R"({"$ref": "#/nowhere"})")), HasSubstr("nowhere"));
  EXPECT_THAT(refusal(schema(R"({"$ref": "http://example.com/x"})")), HasSubstr("not fetched"));
  // Whatever looks like an anchor in listed values is none.
  expect_all(R"({"$defs": {"a": {"const": {"$anchor": "x"}}, "b": {"$anchor": "x", "type": "integer"}}, "$ref": "#x"})",
             [](const Json& value) { return value.is_number_integer(); });
  // A reference counts from the $id it stands under.
  expect_all(
      R"({"$id": "https://a.b/c/root", "$ref": "part", "$defs": {"n": {"type": "null"}, "p": {"$id": "part", "type": "array", "minItems": 1, "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "boolean"}}}}})",
      [](const Json& value) { return value.is_array() && value[0].is_boolean(); });
  expect_all(
      R"({"$dynamicAnchor": "node", "type": "object", "properties": {"next": {"$dynamicRef": "#node"}}, "additionalProperties": false})",
      [](const Json& value) { return value.is_object() && (value.empty() || value["next"].is_object()); });
}

TEST_F(Grammar, ErrorsNameTheirPlace) {
  EXPECT_THAT(
      refusal(schema(
          R"({"properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$defs": {"t": {"properties": {"x": {"type": "wrong"}}}}})")),
      HasSubstr("(at #/$defs/t/properties/x)"));
  EXPECT_THAT(refusal(schema(R"({"properties": {"a": {"pattern": "(a)\\1"}}})")), HasSubstr("(at #/properties/a)"));
}

TEST_F(Grammar, NumbersBeyondDoubles) {
  expect_all(R"({"enum": [9007199254740993, 9007199254740992], "maximum": 9007199254740992})",
             [](const Json& value) { return value.get<int64_t>() == 9007199254740992; });
  expect_all(R"({"type": "integer", "minimum": 9007199254740993, "maximum": 9007199254740995})", [](const Json& value) {
    return value.get<int64_t>() >= 9007199254740993 && value.get<int64_t>() <= 9007199254740995;
  });
  EXPECT_THAT(refusal(schema(R"({"const": 100000000000000000001})")), HasSubstr("64 bits"));
}

TEST_F(Grammar, MultiplesOfFractionsDivideWhole) {
  for (const double step : {0.01, 0.1, 0.5, 2.5, 0.3, 1e-6, 0.07}) {
    for (const char* bounds : {"", R"(, "minimum": 0)", R"(, "minimum": -3, "maximum": 11)"}) {
      expect_all(fmt::format(R"({{"type": "number", "multipleOf": {}{}}})", step, bounds).c_str(),
                 [&](const Json& value) {
                   const double quotient = value.get<double>() / step;
                   return quotient == std::floor(quotient);
                 });
    }
  }
}

TEST_F(Grammar, ItemsWithoutDuplicates) {
  for (
      const char* items :
      {R"({"type": "string"})", R"({"type": "integer", "minimum": 1})", R"({"type": "number"})",
       R"({"anyOf": [{"type": "string"}, {"type": "integer"}]})",
       R"({"type": "string", "pattern": "^[a-z][a-z0-9]*$"})",
       R"({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]})",
       R"({"type": "object", "properties": {"id": {"type": "string"}}})",
       R"({"type": "object", "properties": {"a": {"enum": [1, 2, 3]}}, "required": ["a"]})",
       R"({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}}})",
       R"({"type": "object", "properties": {"a": {"type": "object", "properties": {"c": {"const": 1}}}}})",
       R"({"type": "object", "properties": {"k": {"enum": ["x", "y"]}, "n": {"type": "array"}}, "required": ["k"]})"}) {
    expect_all(fmt::format(R"({{"type": "array", "items": {}, "uniqueItems": true, "minItems": 2}})", items).c_str(),
               [](const Json& value) {
                 return value.size() >= 2 && std::set<Json>(value.begin(), value.end()).size() == value.size();
               });
  }
}

TEST_F(Grammar, WhatCannotBeEnforcedIsRefused) {
  const char* const schemas[] = {R"({"type": "string", "not": {"format": "regex"}})",
                                 R"({"type": "array", "items": {"const": 1}, "uniqueItems": true, "minItems": 2})",
                                 R"({"type": "array", "contains": {}, "minContains": 100})",
                                 R"({"type": "integer", "minimum": 1e18})",
                                 R"({"type": "string", "pattern": "^(ab|c)*$", "minLength": 20000})",
                                 R"({"type": "array", "items": {"type": "array"}, "uniqueItems": true, "minItems": 2})",
                                 R"({"type": "number", "multipleOf": 0})",
                                 R"({"type": "number", "multipleOf": 1e-300})",
                                 R"({"allOf": [{"exclusiveMaximum": 5}, {"exclusiveMaximum": true, "maximum": 9}]})",
                                 R"({"allOf": [{"exclusiveMaximum": true}, {"exclusiveMaximum": false}]})",
                                 R"s({"type": "string", "pattern": "(?<=a)b"})s",
                                 R"({"type": "string", "pattern": "é\\b"})",
                                 R"({"type": "string", "pattern": "a{,3}"})",
                                 R"({"type": "string", "pattern": "\\Ba"})",
                                 R"({"type": "string", "pattern": "(a)\\1"})",
                                 R"({"dependentRequired": ["a"]})",
                                 R"({"type": "wrong"})",
                                 R"({"type": "object", "minProperties": 40})",
                                 "[]",
                                 "3",
                                 "{",
                                 "\"x\""};
  for (const char* text : schemas) EXPECT_NE(refusal(schema(text)), "accepted") << text;
}

// Against std::regex over all short texts of a and b.
TEST_F(Grammar, PatternsWithAssertionsAreExact) {
  for (const char* pattern : {"^(?!ab)[ab]*$", "^(?=.*b)a*b?a*$", "^(a$|b+$)", "(^a|b$)", "^a(?!b)", "a(?=bb)b",
                              "^(?!a*$)(?!b*$)", "^(?:a(?!$)|b){2,3}$"}) {
    const auto spec = schema(Json{{"type", "string"}, {"pattern", pattern}}.dump());
    const auto inverse = schema(Json{{"type", "string"}, {"not", {{"pattern", pattern}}}}.dump());
    const std::regex reference(pattern);
    for (size_t length = 0; length <= 6; ++length) {
      for (size_t bits = 0; bits < size_t{1} << length; ++bits) {
        std::string text;
        for (size_t i = 0; i < length; ++i) text += (bits >> i & 1) != 0 ? 'b' : 'a';
        const bool matches = std::regex_search(text, reference);
        EXPECT_EQ(accepts(spec, '"' + text + '"'), matches) << pattern << " " << text;
        EXPECT_EQ(accepts(inverse, '"' + text + '"'), !matches) << pattern << " " << text;
      }
    }
  }
  const auto tempered = schema(R"s({"type": "string", "pattern": "^((?!aa).)*$"})s");
  EXPECT_TRUE(accepts(tempered, "\"abab\""));
  EXPECT_FALSE(accepts(tempered, "\"abaab\""));
  const auto both =
      schema(R"({"allOf": [{"pattern": "^a.*b$"}, {"pattern": "ba"}, {"type": "string", "maxLength": 5}]})");
  EXPECT_TRUE(accepts(both, "\"abab\""));
  EXPECT_FALSE(accepts(both, "\"aabb\""));
  EXPECT_FALSE(accepts(both, "\"ababab\""));
  const auto word = schema(R"({"type": "string", "pattern": "\\bcat\\b"})");
  for (const char* text : {"\"cat\"", "\"a cat.\"", "\"cat cat\""}) EXPECT_TRUE(accepts(word, text)) << text;
  for (const char* text : {"\"cats\"", "\"_cat\"", "\"1cat\""}) EXPECT_FALSE(accepts(word, text)) << text;
}

TEST_F(Grammar, PatternsWithLengthsAreExact) {
  struct Case {
    const char* pattern;
    size_t least, most;
  };
  for (const auto& [pattern, least, most] :
       {Case{"^a*b?(ab)*$", 2, 4}, Case{"^(a|bb){1,3}$", 3, 5}, Case{"ab", 3, 4}, Case{"^(a?b){2,}$", 4, 100},
        Case{"^(a*)*b$", 0, 3}, Case{"^a+$|^b+a$", 2, 3}}) {
    Json bounded{{"type", "string"}, {"pattern", pattern}, {"minLength", least}};
    if (most < 100) bounded["maxLength"] = most;
    const auto spec = schema(bounded.dump());
    const std::regex reference(pattern);
    for (size_t length = 0; length <= 6; ++length) {
      for (size_t bits = 0; bits < size_t{1} << length; ++bits) {
        std::string text;
        for (size_t i = 0; i < length; ++i) text += (bits >> i & 1) != 0 ? 'b' : 'a';
        const bool valid = length >= least && length <= most && std::regex_search(text, reference);
        EXPECT_EQ(accepts(spec, '"' + text + '"'), valid) << pattern << " and " << text;
      }
    }
  }
}

TEST_F(Grammar, DistinctItems) {
  const auto spec =
      schema(R"({"type": "array", "items": {"enum": [1, "b", null]}, "uniqueItems": true, "minItems": 2})");
  EXPECT_TRUE(accepts(spec, R"([1,"b"])"));
  EXPECT_TRUE(accepts(spec, R"(["b",null])"));
  EXPECT_TRUE(accepts(spec, R"([1,"b",null])"));
  EXPECT_FALSE(accepts(spec, R"([1,1])"));
  EXPECT_FALSE(accepts(spec, R"([1])"));
  EXPECT_FALSE(accepts(spec, R"([])"));
  const auto turned =
      schema(R"({"type": "array", "items": {"enum": [{"a": 1, "b": 2}, {"b": 2, "a": 1}, 3]}, "uniqueItems": true})");
  EXPECT_TRUE(accepts(turned, R"([{"a":1,"b":2},3])"));
  EXPECT_FALSE(accepts(turned, R"([{"a":1,"b":2},{"b":2,"a":1}])"));
}

TEST_F(Grammar, BoundsOfWideIntegersAndOldDrafts) {
  const auto wide = schema(R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})");
  EXPECT_TRUE(accepts(wide, "-123456789012345"));
  const auto old = schema(R"({"type": "integer", "minimum": 0, "exclusiveMinimum": true, "maximum": 3})");
  EXPECT_FALSE(accepts(old, "0"));
  EXPECT_TRUE(accepts(old, "1"));
  EXPECT_TRUE(accepts(old, "3"));
}

TEST_F(Grammar, Regexes) {
  const std::string text = "(yes|no), [A-Z][a-z]{2,4}\\.?";
  const std::regex reference(text);
  for (const std::string& answer : answers(regex(text))) EXPECT_TRUE(std::regex_match(answer, reference)) << answer;
  EXPECT_TRUE(accepts(regex("^\\d{3}-\\w+$"), "123-ab_9"));
  EXPECT_FALSE(accepts(regex("^\\d{3}-\\w+$"), "12-ab"));
  EXPECT_TRUE(accepts(regex("(?P<year>\\d{4})-(?<month>\\d\\d)"), "2024-05"));
  EXPECT_TRUE(accepts(regex("[^\\u0000-\\u007f]+"), "\xE8\xAA\x9E"));
}

TEST_F(Grammar, Ebnf) {
  const auto spec = ebnf("root ::= \"a\" list \"!\"\nlist ::= item (\", \" item)*\nitem ::= [0-9]+ | \"x\"{2,3}");
  EXPECT_TRUE(accepts(spec, "a1, xx, 23!"));
  EXPECT_FALSE(accepts(spec, "a1, x!"));
  const auto forms = ebnf("root ::= | 'it''s' . (\"a\" | ) [b]{,2} | \"-\"{1,} ");
  for (const char* text : {"", "its\n", "its!abb", "its\xC3\xA9", "--"}) EXPECT_TRUE(accepts(forms, text)) << text;
  for (const char* text : {"its", "its!abbb", "its!aab", "it's!"}) EXPECT_FALSE(accepts(forms, text)) << text;
  EXPECT_THAT(refusal(ebnf("root ::= nothing")), HasSubstr("nothing"));
  EXPECT_NE(refusal(ebnf("root ::= \"a\" ()")), "accepted");
  EXPECT_NE(refusal(ebnf("root ::= x\nx ::=\n")), "accepted");
  EXPECT_NE(refusal(ebnf("root ::= 'a")), "accepted");
  EXPECT_NE(refusal(ebnf("root ::= \"a")), "accepted");
  EXPECT_NE(refusal(ebnf("other ::= \"a\"")), "accepted");
  EXPECT_NE(refusal(ebnf("")), "accepted");
}

TEST_F(Grammar, ToolCalls) {
  GrammarSpec spec{.kind = GrammarSpec::Kind::ToolCalls, .parallel = true};
  spec.syntax = {"[", "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]"};
  spec.tools = {{"f", R"({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})"},
                {"g\"", ""}};
  for (const std::string& answer : answers(spec)) {
    const Json calls = Json::parse(answer, nullptr, false);
    ASSERT_TRUE(calls.is_array() && !calls.empty()) << answer;
    for (const Json& call : calls) {
      ASSERT_TRUE(call["name"] == "f" ? call["arguments"]["x"].is_number_integer() : call["name"] == "g\"") << answer;
    }
  }
  spec.parallel = false;
  EXPECT_TRUE(accepts(spec, R"([{"name": "f", "arguments": {"x": 1}}])"));
  EXPECT_FALSE(accepts(spec, R"([{"name": "f", "arguments": {"x": 1}}, {"name": "f", "arguments": {"x": 1}}])"));
}

TEST_F(Grammar, CompiledOnesAreKept) {
  compiler_.compile(schema(R"({"type": "integer"})"));
  compiler_.compile(schema(R"({"type": "integer"})"));
  EXPECT_EQ(compiler_.stats().misses, 1u);
  EXPECT_EQ(compiler_.stats().hits, 1u);
  GrammarCompiler small(vocabulary_, 1);
  small.compile(schema(R"({"type": "integer"})"));
  small.compile(schema(R"({"type": "string"})"));
  EXPECT_EQ(small.stats().kept, 1u);
}

}  // namespace
}  // namespace millrace
