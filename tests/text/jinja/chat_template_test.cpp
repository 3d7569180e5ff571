#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/error.h"

namespace millrace {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

template <class Action>
std::string message_of(ErrorKind kind, Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(ChatTemplate, RendersAConversation) {
  const ChatTemplate chat_template(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  const ordered_json context = {
      {"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"eos_token", "</s>"}, {"add_generation_prompt", true}};
  EXPECT_EQ(chat_template.render(context), "<user>Hi</s><assistant>");
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_THAT(message_of(ErrorKind::BadFile, [] { ChatTemplate("a\n{% if %}"); }), HasSubstr("line 2"));
  EXPECT_THAT(message_of(ErrorKind::BadFile, [] { ChatTemplate("\n\n{{ x|nope }}", "model.jinja"); }),
              HasSubstr("model.jinja line 3: No filter named 'nope'"));
  EXPECT_THAT(message_of(ErrorKind::BadFile, [] { ChatTemplate("{{ 'a b'|wordwrap(3) }}"); }),
              HasSubstr("No filter named 'wordwrap'"));
  EXPECT_THAT(message_of(ErrorKind::BadFile,
                         [] {
                           ChatTemplate("{{ 1 }}\n{% for x in [1] %}\n{{ x.y.z }}{% endfor %}").render({{"a", 1}});
                         }),
              HasSubstr("line 3: 'int object' has no attribute 'y'"));
  EXPECT_THAT(message_of(ErrorKind::BadFile,
                         [] {
                           ChatTemplate("{% macro m() %}\n{{ 1 }}\n{% endmacro %}\n{{ m() + 1 }}").render({{"a", 1}});
                         }),
              HasSubstr("line 4"));
}

TEST(ChatTemplate, TellsTheTemplatesOwnRefusalApart) {
  const std::string message = message_of(ErrorKind::Unsupported, [] {
    ChatTemplate("{{ raise_exception('Roles must\nalternate') }}").render(ordered_json::object());
  });
  EXPECT_THAT(message, HasSubstr("Roles must alternate"));
}

TEST(ChatTemplate, RefusesWhatIsNoText) {
  EXPECT_THAT(message_of(ErrorKind::BadFile, [] { ChatTemplate("a\xff"); }), HasSubstr("UTF-8"));
  message_of(ErrorKind::BadFile, [] { ChatTemplate("{{ x }}").render({{"x", "\xc3"}}); });
  message_of(ErrorKind::BadFile, [] { ChatTemplate("{{ x }}").render(ordered_json::array()); });
}

TEST(ChatTemplate, TellsTheTimeItIsGiven) {
  const std::chrono::system_clock::time_point noon{std::chrono::hours(24 * 365) + std::chrono::hours(12)};
  EXPECT_EQ(ChatTemplate("{{ strftime_now('%Y') }}").render(ordered_json::object(), noon), "1971");
}

TEST(ChatTemplate, RendersOnManyThreads) {
  const ChatTemplate chat_template(
      "{% set ns = namespace(n='') %}{% for x in xs %}{% set ns.n = ns.n ~ x %}{% endfor %}{{ ns.n }}");
  std::vector<std::string> texts(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) texts[i] = chat_template.render({{"xs", {i, "-", round}}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], std::to_string(i) + "-49");
}

TEST(ChatTemplateSources, ChoosesAsHuggingFaceDoes) {
  ChatTemplateSources one;
  one.add_from_tokenizer_config({{"chat_template", "D"}});
  EXPECT_EQ(one.choose(false), "D");
  EXPECT_EQ(one.choose(true), "D");
  one.add("default", "file");
  EXPECT_EQ(one.choose(true), "file");

  ChatTemplateSources named;
  named.add_from_tokenizer_config(
      {{"chat_template", {{{"name", "default"}, {"template", "D"}}, {{"name", "tool_use"}, {"template", "T"}}}}});
  EXPECT_EQ(named.choose(false), "D");
  EXPECT_EQ(named.choose(true), "T");

  ChatTemplateSources gguf;
  gguf.add_from_gguf("tokenizer.chat_template", "D");
  gguf.add_from_gguf("tokenizer.chat_template.tool_use", "T");
  gguf.add_from_gguf("tokenizer.ggml.model", "gpt2");
  EXPECT_EQ(gguf.names(), (std::vector<std::string>{"default", "tool_use"}));
  EXPECT_EQ(gguf.choose(true), "T");
}

TEST(ChatTemplateSources, SaysWhatIsWrong) {
  message_of(ErrorKind::Unsupported, [] { ChatTemplateSources().choose(false); });
  EXPECT_THAT(message_of(ErrorKind::Unsupported,
                         [] {
                           ChatTemplateSources rag;
                           rag.add("rag", "R");
                           rag.choose(true);
                         }),
              HasSubstr("rag"));
  for (const ordered_json& bad : {ordered_json(5), ordered_json::array({{{"name", "x"}}}), ordered_json::array({7})}) {
    message_of(ErrorKind::BadFile, [&] { ChatTemplateSources().add_from_tokenizer_config({{"chat_template", bad}}); });
  }
  ChatTemplateSources none;
  none.add_from_tokenizer_config({{"chat_template", nullptr}});
  none.add_from_tokenizer_config(ordered_json::array());
  EXPECT_TRUE(none.empty());
}

TEST(ChatTemplateSources, SpecialTokensBecomeVariables) {
  const ordered_json config = {
      {"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}, {"lstrip", false}}}, {"pad_token", nullptr}};
  EXPECT_EQ(special_token_variables(config), (ordered_json{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
}

}  // namespace
}  // namespace millrace
