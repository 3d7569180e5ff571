// A model may say what it likes until it opens a call; from there on the call is what its schema says.
#include "grammar/triggered.h"
#include "fresh_seed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "random_answer.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

class Triggered : public testing::Test {
 protected:
  // Single bytes, some longer tokens that begin or cross the openings, and at the end a special token without text.
  Triggered() {
    for (int byte = 0; byte < 256; ++byte) vocabulary_.tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* text :
         {"</s>", ">\n", ">\n{\"", ">{", "<tool_call>\n", "<tool_call>?", " {\"", "{\"name\": \"", "{'", "|>{'"})
      vocabulary_.tokens.emplace_back(text);
    vocabulary_.end_tokens = {256};
    marker_ = static_cast<int32_t>(vocabulary_.tokens.size());
    vocabulary_.tokens.emplace_back();
    compiler_ = std::make_unique<GrammarCompiler>(vocabulary_);
  }

  static GrammarSpec calls(const GrammarSpec::CallSyntax& syntax) {
    const char* schema = R"({"type": "object", "properties": {"s": {"type": "integer", "minimum": 0, "maximum": 9}},
                             "required": ["s"], "additionalProperties": false})";
    return {.kind = GrammarSpec::Kind::ToolCalls, .syntax = syntax, .tools = {{"wait", schema}}};
  }

  void begin(const GrammarSpec& spec, const GrammarTrigger& trigger) {
    constraint_ = compiler_->compile(spec, trigger);
  }
  void begin_hermes() {
    begin(calls({"", "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>", "\n", ""}),
          {.text = "<tool_call>"});
  }
  void begin_llama() {
    begin(calls({"", "{\"name\": \"", "\", \"parameters\": ", "}", "", ""}),
          {.text = "{", .at_start = true, .restart = "<|python_tag|>", .markers = {{marker_, "<|python_tag|>"}}});
  }

  int32_t token(std::string_view text) const {
    const auto found = std::find(vocabulary_.tokens.begin(), vocabulary_.tokens.end(), text);
    EXPECT_NE(found, vocabulary_.tokens.end()) << text;
    return static_cast<int32_t>(found - vocabulary_.tokens.begin());
  }
  bool free() {
    std::vector<uint32_t> mask(mask_words(static_cast<int64_t>(vocabulary_.tokens.size())));
    return !constraint_->fill_mask(mask);
  }
  bool allows(int32_t token) {
    std::vector<uint32_t> mask(mask_words(static_cast<int64_t>(vocabulary_.tokens.size())));
    if (!constraint_->fill_mask(mask)) return true;
    return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  }
  bool allows(std::string_view text) { return allows(token(text)); }
  void say(int32_t token) {
    ASSERT_TRUE(allows(token)) << vocabulary_.tokens[static_cast<size_t>(token)];
    constraint_->accept(token);
  }
  void say_token(std::string_view text) { say(token(text)); }
  void say(std::string_view text) {
    for (const char byte : text) say(static_cast<int32_t>(static_cast<unsigned char>(byte)));
  }

  GrammarVocabulary vocabulary_;
  int32_t marker_ = 0;
  std::unique_ptr<GrammarCompiler> compiler_;
  std::unique_ptr<Constraint> constraint_;
};

TEST_F(Triggered, TextIsFreeAndACallIsNot) {
  begin_hermes();
  say("Let me see: a < b, <tool_box>, {\"name\": 1} <tool_call");
  EXPECT_TRUE(allows(">\n"));
  EXPECT_TRUE(allows(">\n{\""));
  EXPECT_FALSE(allows(">{"));  // the call begins with a line
  EXPECT_TRUE(allows("x"));    // it may still be none
  say_token(">\n{\"");
  EXPECT_FALSE(free());
  say("name\": \"wait\", \"arguments\": ");
  EXPECT_FALSE(allows("["));
  say("{\"s\": ");
  EXPECT_FALSE(allows("\""));
  say("7");
  EXPECT_FALSE(allows("5"));
  EXPECT_FALSE(allows("</s>"));
  say("}}\n</tool_call>");
  EXPECT_TRUE(allows("</s>"));
  EXPECT_FALSE(allows("x"));
  EXPECT_FALSE(constraint_->failed());
}

TEST_F(Triggered, OneTokenMayBeTheWholeOpening) {
  begin_hermes();
  EXPECT_TRUE(allows("<tool_call>\n"));
  EXPECT_FALSE(allows("<tool_call>?"));
  say("Well. ");
  EXPECT_FALSE(allows("<tool_call>?"));
  say_token("<tool_call>\n");
  EXPECT_FALSE(allows("x"));
  say("{\"name\": \"wait\"");
}

TEST_F(Triggered, AnswersThatBeginWithABrace) {
  begin_llama();
  EXPECT_TRUE(allows("x"));
  EXPECT_FALSE(allows("{'"));
  say("\n");
  EXPECT_FALSE(allows("{'"));
  say_token(" {\"");
  EXPECT_FALSE(allows("x"));
  say("name\": \"wait\", \"parameters\": {\"s\": 3}}");
  EXPECT_FALSE(allows(" "));
  EXPECT_TRUE(allows("</s>"));
}

TEST_F(Triggered, BracesInTextOpenNothing) {
  begin_llama();
  say("In C: {");
  EXPECT_TRUE(free());
  EXPECT_TRUE(allows("{'"));
  say("<|python_tag");
  EXPECT_FALSE(allows("|>{'"));
  say("|>");
  EXPECT_FALSE(allows("{'"));
  say("print(1)");
  EXPECT_TRUE(free());
  say(marker_);
  say_token("{\"name\": \"");
  EXPECT_FALSE(allows("x"));
  say("wait");
}

TEST_F(Triggered, AMarkerOfItsOwn) {
  begin(calls({"[", "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]"}),
        {.text = "[TOOL_CALLS]", .in_grammar = false, .markers = {{marker_, "[TOOL_CALLS]"}}});
  say("[1] ");
  say(marker_);
  EXPECT_FALSE(allows("{"));
  say("[{\"name\": \"wait\", \"arguments\": {\"s\": 0}}]");
  EXPECT_TRUE(allows("</s>"));
}

TEST_F(Triggered, RandomCallsHoldToTheirSchema) {
  const auto seed = fresh_seed();
  std::mt19937_64 random(seed);
  int whole = 0;
  for (int i = 0; i < 50; ++i) {
    begin_hermes();
    say("<tool_call>");
    const auto text = random_answer(*constraint_, vocabulary_, random);
    if (!text) continue;
    ++whole;
    const Json call = Json::parse(text->substr(0, text->find("</tool_call>")), nullptr, false);
    ASSERT_TRUE(call.is_object()) << *text << " seed " << seed;
    EXPECT_TRUE(call["arguments"]["s"] >= 0 && call["arguments"]["s"] <= 9 && call["arguments"].size() == 1) << *text;
  }
  EXPECT_GT(whole, 0) << "seed " << seed;
}

}  // namespace
}  // namespace millrace
