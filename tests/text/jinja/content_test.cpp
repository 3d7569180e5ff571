// Which bytes of a rendered conversation come from its messages: exact through everything that cuts and joins texts.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/chat_template.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// The rendered text with its content between « and ».
std::string marked(const std::string& source, const Json& context, const Json& own = Json::object()) {
  const RenderedChat chat = ChatTemplate(source).render_chat(context, own);
  std::string text;
  size_t at = 0;
  for (const auto& [begin, end] : chat.content) {
    EXPECT_LE(at, begin);
    EXPECT_LT(begin, end);
    text += chat.text.substr(at, begin - at) + "«" + chat.text.substr(begin, end - begin) + "»";
    at = end;
  }
  EXPECT_LE(at, chat.text.size());
  return text + chat.text.substr(at);
}

std::string marked(const std::string& expression) {
  return marked("<" + expression + ">", {{"c", "<a b>"}, {"d", "é|ü"}, {"list", {"x", "y"}}, {"o", {{"k", "v"}}}});
}

TEST(ContentTest, MessagesAreContentAndMarkupIsNot) {
  const std::string source =
      "{{ bos_token }}{% for m in messages %}<|start|>{{ m.role }}\n{{ m['content'] | trim }}<|end|>{% endfor %}";
  const Json own{{"bos_token", "<s>"}};
  Json context{{"bos_token", "<s>"}, {"messages", {{{"role", "user"}, {"content", " <|end|> "}}}}};
  EXPECT_EQ(marked(source, context, own), "<s><|start|>«user»\n«<|end|>»<|end|>");
  context["bos_token"] = "<|end|>";  // the user's, not the template's
  EXPECT_EQ(marked(source, context, own), "«<|end|>»<|start|>«user»\n«<|end|>»<|end|>");
}

TEST(ContentTest, CutsAndJoinsAreExact) {
  EXPECT_EQ(marked("{{ 'A' + c + 'B' ~ d ~ 1 }}"), "<A«<a b>»B«é|ü»1>");
  EXPECT_EQ(marked("{{ ('AB' + c)[1:4] }}"), "<B«<a»>");
  EXPECT_EQ(marked("{{ (d + 'AB')[::-1] }}"), "<BA«ü|é»>");
  EXPECT_EQ(marked("{{ (c + 'AB')[0] }}{{ (c + 'AB')[-1] }}"), "<«<»B>");
  EXPECT_EQ(marked("{{ ('A ' + c + ' B').split(' ') | join('+') }}"), "<A+«<a»+«b>»+B>");
  EXPECT_EQ(marked("{{ ('..' + c + '..').strip('.') }}{{ (' ' + d + ' ') | trim }}"), "<«<a b>é|ü»>");
  EXPECT_EQ(marked("{{ ('A-' + c).partition('-')[2] }}{{ ('A' + c).removeprefix('A') }}"), "<«<a b><a b>»>");
  EXPECT_EQ(marked("{{ 'A#B' | replace('#', c) }}{{ ('A' + c).replace('a', 'Z') }}"), "<A«<a b>»BA«<»Z« b>»>");
  EXPECT_EQ(marked("{{ (c + 'A') * 2 }}"), "<«<a b>»A«<a b>»A>");
  EXPECT_EQ(marked("{{ (c + 'A') | reverse }}"), "<A«>b a<»>");
  EXPECT_EQ(marked("{{ ('A' + c) | upper }}{{ ('A' + c).title() }}"), "<A«<A B>»A«<A B>»>");
  EXPECT_EQ(marked("{{ ('A\nB' ~ c) | indent(2) }}"), "<A\n  B«<a b>»>");
  EXPECT_EQ(marked("{{ list | join('/') }}{{ '/'.join(list) }}"), "<«x»/«yx»/«y»>");
  EXPECT_EQ(marked("{{ 'A%sB' % c }}{{ 'A%sB' | format(c) }}{{ 'A{}B'.format(c) }}"), "<A«<a b>»BA«<a b>»BA«<a b>»B>");
  EXPECT_EQ(marked("{{ (c + 'A') | safe }}{{ (c + 'A') | string }}"), "<«<a b>»A«<a b>»A>");
}

TEST(ContentTest, BlocksAndMacrosKeepThem) {
  EXPECT_EQ(marked("{% set x %}A{{ c }}B{% endset %}{{ x }}"), "<A«<a b>»B>");
  EXPECT_EQ(marked("{% macro f(t) %}A{{ t }}{% endmacro %}{{ f(c) }}{{ f('B') }}"), "<A«<a b>»AB>");
  EXPECT_EQ(marked("{% filter upper %}x{{ list[0] }}{% endfilter %}"), "<X«X»>");
  EXPECT_EQ(marked("{% for l in list %}A{{ l }}{% endfor %}"), "<A«x»A«y»>");
  EXPECT_EQ(marked("{% for ch in c %}{{ ch }}.{% endfor %}"), "<«<».«a».« ».«b».«>».>");
  EXPECT_EQ(marked("{% set ns = namespace(t='A') %}{% set ns.t = ns.t + c %}{{ ns.t }}"), "<A«<a b>»>");
  EXPECT_EQ(marked("{{ list | map('upper') | join('-') }}"), "<«X»-«Y»>");
}

TEST(ContentTest, OtherOperationsMarkAllOfTheirResult) {
  EXPECT_EQ(marked("{{ c | tojson }}{{ o | tojson }}"), "<«\"<a b>\"{\"k\": \"v\"}»>");
  EXPECT_EQ(marked("{{ c.zfill(7) }}{{ d.center(5, '*') }}"), "<«00<a b>*é|ü*»>");
  EXPECT_EQ(marked("{{ o }}"), "<«{'k': 'v'}»>");
  EXPECT_EQ(marked("{{ 'A' | tojson }}{{ ['A', 'B'] | tojson }}{{ '%s' % 'A' }}"), "<\"A\"[\"A\", \"B\"]A>");
  EXPECT_EQ(marked("{% for k, v in o.items() %}{{ k }}={{ v }}{% endfor %}"), "<«k»=«v»>");
}

TEST(ContentTest, ValuesOfTheTemplateStayItsOwn) {
  EXPECT_EQ(marked("{{ none_such | default('<A>') }}{{ [c, '<A>'] | last }}{{ 'x' if c else 'y' }}"), "<<A><A>x>");
  EXPECT_EQ(marked("{{ {'user': '<U>'}['user'] }}{{ c | length }}{{ c == '<a b>' }}"), "<<U>5True>");
}

}  // namespace
}  // namespace millrace
