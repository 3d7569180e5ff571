// Parses answers with every way of cutting them into pieces.
#include "text/answer/answer_parser.h"
#include "fresh_seed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace millrace {
namespace {

// The joined result in one line: R(...) reasoning, C(...) content, f(...) calls.
std::string join(const std::vector<AnswerPiece>& pieces) {
  std::string reasoning, content, calls;
  int open = -1;
  for (const AnswerPiece& piece : pieces) {
    switch (piece.kind) {
      case AnswerPiece::Kind::Reasoning:
        reasoning += piece.text;
        break;
      case AnswerPiece::Kind::Content:
        content += piece.text;
        break;
      case AnswerPiece::Kind::Call:
        EXPECT_EQ(piece.call, open + 1);
        if (open >= 0) calls += ")";
        calls += piece.text + "(";
        open = piece.call;
        break;
      case AnswerPiece::Kind::Arguments:
        EXPECT_EQ(piece.call, open) << "arguments of a call that is not the last";
        calls += piece.text;
        break;
    }
  }
  if (open >= 0) calls += ")";
  std::string line;
  if (!reasoning.empty()) line += "R(" + reasoning + ")";
  if (!content.empty()) line += "C(" + content + ")";
  return line + calls;
}

std::string parse(const AnswerParserOptions& options, const std::vector<std::string>& pieces) {
  AnswerParser parser(options);
  std::vector<AnswerPiece> all;
  const auto add = [&all](const std::vector<AnswerPiece>& more) { all.insert(all.end(), more.begin(), more.end()); };
  for (const std::string& piece : pieces) add(parser.push(piece));
  add(parser.finish());
  return join(all);
}

struct Case {
  const char* name;
  AnswerParserOptions options;
  std::string text, expected;
};

AnswerParserOptions tools(ToolFormat format) {
  AnswerParserOptions options;
  options.format.tools = format;
  options.tools = true;
  options.names = {"f", "g"};
  return options;
}

AnswerParserOptions reasoning(bool inside, AnswerParserOptions options = {}) {
  options.format.reasons = true;
  options.in_reasoning = inside;
  return options;
}

AnswerParserOptions marked() {
  AnswerParserOptions options = tools(ToolFormat::Mistral);
  options.after_marker = true;
  return options;
}

AnswerParserOptions harmony(bool tools, std::string opened = "") {
  AnswerParserOptions options;
  options.format = {ToolFormat::Harmony, true, true};
  options.tools = tools;
  options.opened = std::move(opened);
  return options;
}

std::vector<Case> cases() {
  const auto hermes = tools(ToolFormat::Hermes), llama = tools(ToolFormat::Llama3),
             mistral = tools(ToolFormat::Mistral);
  return {
      {"plain", {}, "a <tool_call> <think> b\n", "C(a <tool_call> <think> b\n)"},
      {"empty", hermes, "", ""},
      {"text", hermes, "  1 < 2 <tool x\n ", "C(  1 < 2 <tool x\n )"},
      {"call", hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n</tool_call>",
       "f({\"a\": [1, \"}\\\"\"]})"},
      {"calls and text", hermes,
       "Let me see.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"arguments\":{\"x\":1},"
       "\"name\":\"g\"}</tool_call>\nDone. ",
       "C(Let me see.\nDone.)f({})g({\"x\":1})"},
      {"no arguments", hermes, "<tool_call>{\"name\": \"f\"}</tool_call>", "f({})"},
      {"written arguments", hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
       "f({\"a\": 1})"},
      {"scalar arguments", hermes, "<tool_call>{\"name\": \"f\", \"arguments\": 12 }</tool_call>", "f(12)"},
      {"escaped name", hermes, "<tool_call>{\"name\": \"f\\u0041\"}</tool_call>", "fA({})"},
      {"other keys", hermes, "<tool_call>{\"id\": 3, \"type\": {\"name\": \"no\"}, \"name\": \"f\"}</tool_call>",
       "f({})"},
      {"no call", hermes, "<tool_call>hello</tool_call>", "C(<tool_call>hello</tool_call>)"},
      {"cut before the name", hermes, "Hm <tool_call>{\"na", "C(Hm <tool_call>{\"na)"},
      {"cut in the arguments", hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", "f({\"a\": \"b)"},
      {"cut in a tag", hermes, "well <tool_c", "C(well <tool_c)"},
      {"broken after the name", hermes, "<tool_call>{\"name\": \"f\" oops}</tool_call> more", "C( more)f()"},
      {"tag forgotten", hermes, "<tool_call>{\"name\": \"f\"}<tool_call>{\"name\": \"g\"}</tool_call>", "f({})g({})"},
      {"tag broken", hermes, "<tool_call>{\"name\": \"f\"}</tool x", "C(</tool x)f({})"},
      {"llama", llama, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "f({\"a\": \"b\"})"},
      {"llama, tag", llama, "<|python_tag|>{\"type\": \"function\", \"name\": \"g\", \"parameters\": {}}", "g({})"},
      {"llama, two", llama, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"q\": 1}}",
       "f({})g({\"q\": 1})"},
      {"llama, other JSON", llama, " {\"name\": \"Ann\", \"age\": 3} ", "C( {\"name\": \"Ann\", \"age\": 3} )"},
      {"llama, text", llama, "Sure: {\"name\": \"f\"}", "C(Sure: {\"name\": \"f\"})"},
      {"llama, text and tag", llama, "Sure. <|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "C(Sure.)f({})"},
      {"mistral", mistral,
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
       "f({\"a\": 1})g({})"},
      {"mistral, newer", mistral, "Yes [TOOL_CALLS]f[ARGS]{\"a\": {}}[TOOL_CALLS]g[CALL_ID]xyz[ARGS]{}",
       "C(Yes)f({\"a\": {}})g({})"},
      {"mistral, text", mistral, "a [TOOL] list [1]", "C(a [TOOL] list [1])"},
      {"mistral, forced", marked(), "[{\"name\": \"f\", \"arguments\": {}}]", "f({})"},
      {"reasoning", reasoning(false), "\n<think>\nSo < what?\n</think>\n\nIt is.", "R(So < what?)C(It is.)"},
      {"reasoning from the prompt", reasoning(true), "So\n\n what</think> 4 </think>", "R(So\n\n what)C(4 </think>)"},
      {"reasoning without end", reasoning(true), "So </thin", "R(So </thin)"},
      {"no reasoning", reasoning(false), " <thin>k <think>", "C( <thin>k <think>)"},
      {"empty reasoning", reasoning(false), "<think>\n\n</think>\n\nHi", "C(Hi)"},
      {"reasoning and call", reasoning(false, hermes),
       "<think>call <tool_call></think>\n<tool_call>{\"name\": \"f\"}</tool_call>", "R(call <tool_call>)f({})"},
      {"unicode", reasoning(true, hermes),
       "é</think>ü <tool_call>{\"name\": \"f\", \"arguments\": {\"ß\": \"語\"}}</tool_call>",
       "R(é)C(ü)f({\"ß\": \"語\"})"},
      {"harmony", harmony(false),
       "<|channel|>analysis<|message|>So < what?\n<|end|><|start|>assistant<|channel|>final<|message|> It is. <b>",
       "R(So < what?\n)C( It is. <b>)"},
      {"harmony, call", harmony(true),
       "<|channel|>analysis<|message|>Call f.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
       "<|constrain|>json<|message|>{\"a\": \"<|\"}<|call|>",
       "R(Call f.)f({\"a\": \"<|\"})"},
      {"harmony, recipient in front", harmony(true),
       " to=functions.a-b.c<|channel|>commentary json<|message|>{\"a\": 1}", "a-b.c({\"a\": 1})"},
      {"harmony, no arguments", harmony(true), "<|channel|>commentary to=functions.f<|message|>", "f({})"},
      {"harmony, preamble and two calls", harmony(true),
       "<|channel|>commentary<|message|>Two things.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
       "<|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>commentary to=functions.g<|message|>{}",
       "C(Two things.)f({})g({})"},
      {"harmony, several messages", harmony(false),
       "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>\n<|start|>"
       "assistant"
       "<|channel|>final<|message|>c<|end|><|start|>assistant<|channel|>final<|message|><|end|><|start|>assistant"
       "<|channel|>final<|message|>d<|return|>",
       "R(a\n\nb)C(c\n\nd)"},
      {"harmony, call of a model without tools", harmony(false),
       "<|channel|>commentary to=python<|message|>print(1)<|call|>", "R(print(1))"},
      {"harmony, text without header", harmony(true), " tomorrow <|x", "C( tomorrow <|x)"},
      {"harmony, cut in a header", harmony(true), "<|channel|>commentary to=func", ""},
      {"harmony, cut in a tag", harmony(false), "<|channel|>final<|message|>a <|en", "C(a <|en)"},
      {"harmony, end forgotten", harmony(false),
       "<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b<|channel|>final<|message|>c",
       "R(a)C(b\n\nc)"},
      {"harmony, tags in a body", harmony(false), "<|channel|>final<|message|>a <|message|> <|constrain|> <<|end|>",
       "C(a <|message|> <|constrain|> <)"},
      {"harmony, opened by the prompt", harmony(false, "<|channel|>analysis<|message|>"),
       "Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes", "R(Hm.)C(Yes)"},
      {"harmony, final opened by the prompt", harmony(false, "<|channel|>final<|message|>"), "Yes", "C(Yes)"},
  };
}

TEST(AnswerParser, TakesAnswersApart) {
  for (const Case& test : cases()) EXPECT_EQ(parse(test.options, {test.text}), test.expected) << test.name;
}

TEST(AnswerParser, AnyTwoPiecesGiveTheSame) {
  for (const Case& test : cases()) {
    for (size_t cut = 0; cut <= test.text.size(); ++cut) {
      ASSERT_EQ(parse(test.options, {test.text.substr(0, cut), test.text.substr(cut)}), test.expected)
          << test.name << " cut at " << cut;
    }
  }
}

// Random sequences of the parsers' delimiters, so that most texts nearly contain calls.
std::string random_text(std::mt19937_64& random) {
  static const std::vector<std::string> kParts = {"<tool_call>",
                                                  "</tool_call>",
                                                  "{\"name\": \"f\", \"arguments\": ",
                                                  "{\"name\": \"g\"",
                                                  "{\"a\": \"}\"}",
                                                  "}",
                                                  "]",
                                                  "[",
                                                  "<think>",
                                                  "</think>",
                                                  "[TOOL_CALLS]",
                                                  "[ARGS]",
                                                  "f",
                                                  " ",
                                                  "\n",
                                                  "<|python_tag|>",
                                                  "\"",
                                                  "\\",
                                                  ",",
                                                  ":",
                                                  "語",
                                                  "<",
                                                  "</t",
                                                  "<|start|>assistant",
                                                  "<|channel|>analysis",
                                                  "<|channel|>commentary to=functions.f ",
                                                  "<|constrain|>json",
                                                  "<|message|>",
                                                  "<|end|>",
                                                  "<|call|>"};
  std::string text;
  for (size_t n = random() % 12; n > 0; --n) {
    std::string part = kParts[random() % kParts.size()];
    if (random() % 8 == 0) part.resize(random() % (part.size() + 1));
    text += part;
  }
  return text;
}

TEST(AnswerParser, AnySplitGivesTheSame) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20000; ++round) {
    AnswerParserOptions options = tools(static_cast<ToolFormat>(random() % 4));
    options.format.reasons = random() % 2;
    options.in_reasoning = options.format.reasons && random() % 2;
    options.after_marker = options.format.tools == ToolFormat::Mistral && random() % 4 == 0;
    const std::string text = random_text(random);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 7;
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    ASSERT_EQ(parse(options, pieces), parse(options, {text})) << text;
  }
}

TEST(AnswerParser, StreamsArgumentsAsTheyCome) {
  AnswerParser parser(tools(ToolFormat::Hermes));
  parser.push("<tool_call>{\"name\": \"f\", \"arguments\": ");
  EXPECT_EQ(parser.calls(), 1);
  const auto pieces = parser.push("{\"city\": \"Par");
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].text, "{\"city\": \"Par");
}

TEST(AnswerParser, KnowsWhetherAHarmonyMessageIsReasoning) {
  AnswerParser parser(harmony(true));
  parser.push("<|channel|>ana");
  EXPECT_FALSE(parser.in_reasoning());
  parser.push("lysis<|message|>a");
  EXPECT_TRUE(parser.in_reasoning());
  parser.push("<|end|>");
  EXPECT_FALSE(parser.in_reasoning());
  EXPECT_EQ(harmony_opened("<|start|>user<|message|>x<|end|><|start|>assistant"), "");
  EXPECT_EQ(harmony_opened("<|start|>assistant<|channel|>final<|message|>"), "<|channel|>final<|message|>");
  EXPECT_EQ(harmony_opened("no messages"), "");
}

TEST(AnswerFormat, IsToldFromTheTemplate) {
  EXPECT_TRUE(answer_format("<|start|>assistant<|channel|>final<|message|>").harmony());
  EXPECT_TRUE(answer_format("<|start|>assistant<|channel|>final<|message|>").reasons);
  EXPECT_EQ(answer_format("{% if tools %}<tool_call>").tools, ToolFormat::Hermes);
  EXPECT_TRUE(answer_format("{% if tools %}<tool_call>").template_has_tools);
  EXPECT_EQ(answer_format("[AVAILABLE_TOOLS] {{ tools }} [TOOL_CALLS]").tools, ToolFormat::Mistral);
  EXPECT_EQ(answer_format("{{ tools }} <|python_tag|>").tools, ToolFormat::Llama3);
  EXPECT_FALSE(answer_format("{{ messages }}").template_has_tools);
  EXPECT_FALSE(answer_format("{{ messages }}").reasons);
  EXPECT_TRUE(answer_format("{{ '<think>' }}").reasons);
  EXPECT_TRUE(prompt_opens_reasoning("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(prompt_opens_reasoning("<think></think>"));
}

}  // namespace
}  // namespace millrace
