// Hostile templates must fail quickly with a one-line message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "text/chat_template.h"

namespace millrace {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

// Renders a template that must fail and returns the error message.
std::string failure_of(const std::string& source, const ordered_json& context = ordered_json::object()) {
  try {
    ChatTemplate(source).render(context);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadFile) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "rendered: " << source.substr(0, 200);
  return {};
}

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Limits, LoopsEnd) {
  const std::string nested = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}";
  EXPECT_THAT(failure_of(nested + repeated("{% endfor %}", 3)), HasSubstr("too long"));
  EXPECT_THAT(failure_of("{% for a in range(100000) %}{% for b in range(100000) %}{% if b in [1, 2] %}{% endif %}"
                         "{% endfor %}{% endfor %}"),
              HasSubstr("too long"));
}

TEST(Limits, OutputAndStringsAreBounded) {
  EXPECT_THAT(failure_of("{{ 'x' * 100000000 }}"), HasSubstr("too long"));
  EXPECT_THAT(failure_of("{{ 'x' * 99999999999999999 }}"), HasSubstr("too long"));
  EXPECT_THAT(failure_of("{% for i in range(99999) %}{{ 'x' * 100000 }}{% endfor %}"), HasSubstr("too long"));
  EXPECT_THAT(failure_of("{{ ('x' * 10000).replace('', 'x' * 10000) }}"), HasSubstr("too long"));
  EXPECT_THAT(failure_of("{{ 'x'.center(99999999999) }}"), HasSubstr("too long"));
  EXPECT_THAT(failure_of("{{ '%99999999d' % 1 }}"), HasSubstr("too large"));
  EXPECT_THAT(failure_of("{{ '{:99999999}'.format(1) }}"), HasSubstr("too large"));
  EXPECT_THAT(failure_of("{{ (['x' * 10000] * 10000)|join }}"), HasSubstr("too long"));
  EXPECT_THAT(failure_of("{{ [0] * 100000000 }}"), HasSubstr("too long"));
}

TEST(Limits, MemoryIsBounded) {
  EXPECT_THAT(failure_of("{% set ns = namespace(l=[]) %}{% for i in range(99999) %}"
                         "{% set ns.l = ns.l + ['x' * 1000000 ~ i] %}{% endfor %}"),
              testing::AnyOf(HasSubstr("memory"), HasSubstr("too long")));
  EXPECT_THAT(
      failure_of("{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"),
      testing::AnyOf(HasSubstr("memory"), HasSubstr("too long")));
}

TEST(Limits, ValuesThatDoubleCannotBePrintedOrCompared) {
  const std::string doubled =
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
      "{% set ns.b = [ns.b, ns.b] %}{% endfor %}";
  EXPECT_THAT(failure_of(doubled + "{{ ns.a }}"), HasSubstr("too long"));
  EXPECT_THAT(failure_of(doubled + "{{ ns.a|tojson }}"), HasSubstr("too long"));
  EXPECT_THAT(failure_of(doubled + "{{ ns.a == ns.b }}"), HasSubstr("too long"));
}

TEST(Limits, DepthOfValuesIsBounded) {
  for (const std::string wrap : {"[ns.a]", "(ns.a,)", "{'k': ns.a}", "ns.a|map('upper')", "[[]]|map('default', ns.a)",
                                 "joiner(ns.a)", "[ns.a].index"}) {
    EXPECT_THAT(failure_of("{% set ns = namespace(a=[]) %}{% for i in range(99999) %}{% set ns.a = " + wrap +
                           " %}{% endfor %}"),
                HasSubstr("deep"))
        << wrap;
  }
}

TEST(Limits, RecursionIsBounded) {
  EXPECT_THAT(failure_of("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}"), HasSubstr("too deep"));
  EXPECT_THAT(failure_of("{% macro m() %}{% call m() %}{% endcall %}{{ caller() }}{% endmacro %}{{ m() }}"),
              HasSubstr("too deep"));
  EXPECT_THAT(failure_of("{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}"), HasSubstr("too deep"));
  EXPECT_THAT(
      failure_of("{% macro a() %}{% if " + repeated("(1 and ", 100) + "b()" + repeated(")", 100) +
                 " %}{% endif %}{% endmacro %}{% macro b() %}{{ [1]|map('default')|map('string')|list }}{{ a() }}"
                 "{% endmacro %}{{ a() }}"),
      HasSubstr("too deep"));
}

TEST(Limits, NestingOfTheSourceIsBounded) {
  for (const std::string open : {"(", "[", "{1:", "not ", "-", "a.b(", "a|f(", "a[", "1 if "}) {
    EXPECT_THAT(failure_of("{{ " + repeated(open, 20000) + " }}"), HasSubstr("line 1")) << open;
  }
  EXPECT_THAT(failure_of("{{ 1" + repeated(" + 1", 20000) + " }}"), HasSubstr("too deep"));
  EXPECT_THAT(failure_of("{{ a" + repeated(".a", 20000) + " }}"), HasSubstr("too deep"));
  EXPECT_THAT(failure_of("{{ a" + repeated("|e", 20000) + " }}"), HasSubstr("too deep"));
  EXPECT_THAT(failure_of(repeated("{% if 1 %}", 20000)), HasSubstr("too deep"));
  EXPECT_THAT(failure_of(repeated("{% for a in b %}", 20000)), HasSubstr("too deep"));
  EXPECT_THAT(failure_of(std::string(5 << 20, 'x')), HasSubstr("too long"));
}

TEST(Limits, NamespacesMayHoldEachOther) {
  const ordered_json none = ordered_json::object();
  EXPECT_EQ(
      ChatTemplate("{% set a = namespace(n=1) %}{% set b = namespace(a=a) %}{% set a.b = b %}{{ a.b.a.n }}{{ a }}")
          .render(none),
      "1<Namespace {'n': 1, 'b': <Namespace {'a': <Namespace {...}>}>}>");
  EXPECT_EQ(ChatTemplate("{% set ns = namespace(l=none) %}{% for i in range(50000) %}{% for j in [1] %}"
                         "{% if loop.changed(ns.l) %}{% endif %}{% set ns.l = loop %}{% endfor %}{% endfor %}ok")
                .render(none),
            "ok");
  EXPECT_EQ(ChatTemplate("{% set ns = namespace(n=none) %}{% for i in range(50000) %}{% set ns.n = namespace(n=ns.n) %}"
                         "{% endfor %}ok")
                .render(none),
            "ok");
  EXPECT_THAT(failure_of("{% set ns = namespace(n=none) %}{% for i in range(50000) %}"
                         "{% set ns.n = namespace(n=ns.n) %}{% endfor %}{{ ns }}"),
              HasSubstr("deep"));
}

TEST(Limits, LoopsThatGotAwayAreHarmless) {
  const ordered_json none = ordered_json::object();
  EXPECT_EQ(
      ChatTemplate(
          "{% set ns = namespace() %}{% for x in [1, 2, 3] if x > 0 %}{% set ns.l = loop %}{% break %}{% endfor %}"
          "{% with y = 5 %}{{ ns.l.index }}{{ ns.l.nextitem }}{{ ns.l.last }}{% endwith %}")
          .render(none),
      "1True");
  EXPECT_EQ(ChatTemplate("{% set ns = namespace() %}{% for x in [1] %}{% macro m() %}{{ x }}{% endmacro %}"
                         "{% set ns.m = m %}{% endfor %}{{ ns.m() }}")
                .render(none),
            "1");
}

TEST(Limits, DeepInputIsRefused) {
  ordered_json deep = 1;
  for (int i = 0; i < 5000; ++i) deep = ordered_json::array({std::move(deep)});
  try {
    ChatTemplate("x").render({{"deep", std::move(deep)}});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadFile);
  }
}

TEST(Limits, SearchesTakeLinearTime) {
  const auto start = std::chrono::steady_clock::now();
  ChatTemplate(
      "{% set hay = 'a' * 2000000 %}{% set needle = 'a' * 1000000 ~ 'b' %}{{ needle in hay }}{{ hay.find(needle) }}"
      "{{ hay.rfind('b' ~ 'a' * 1000000) }}{{ hay.count(needle) }}{{ hay.replace(needle, '')|length }}")
      .render(ordered_json::object());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace millrace
