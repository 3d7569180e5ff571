#include "text/jinja/value/value.h"
#include "fresh_seed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "text/jinja/template_error.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/repr.h"

namespace millrace::jinja {
namespace {

TEST(Dict, KeepsOrderAndFindsEveryKey) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Dict dict;
  std::vector<std::string> order;
  for (int i = 0; i < 300; ++i) {
    const std::string key = "k" + std::to_string(random() % 200);
    if (!dict.find(key)) order.push_back(key);
    dict.set(Value::string(key), Value::integer(i));
    ASSERT_EQ(dict.find(key)->as_integer(), i);
  }
  ASSERT_EQ(dict.size(), order.size());
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(dict.entries()[i].first.str(), order[i]);
}

TEST(Dict, EqualNumbersAreOneKey) {
  for (int filler : {0, 20}) {
    Dict dict;
    for (int i = 0; i < filler; ++i) dict.set(Value::string(std::to_string(i)), Value());
    dict.set(Value::integer(1), Value::integer(10));
    dict.set(Value::boolean(true), Value::integer(11));
    dict.set(Value::real(1.0), Value::integer(12));
    EXPECT_EQ(dict.size(), static_cast<size_t>(filler) + 1);
    EXPECT_EQ(dict.find(Value::integer(1))->as_integer(), 12);
    EXPECT_THROW(dict.find(Value::list({})), TemplateError);
  }
}

TEST(Compare, IntegersAndDoublesCompareExactly) {
  const Value large = Value::integer((Integer(1) << 53) + 1), rounded = Value::real(0x1p53);
  EXPECT_FALSE(equals(large, rounded));
  EXPECT_TRUE(less(rounded, large));
  EXPECT_TRUE(equals(Value::integer(3), Value::real(3.0)));
  EXPECT_TRUE(less(Value::integer(3), Value::real(3.5)));
  EXPECT_TRUE(less(Value::real(-3.5), Value::integer(-3)));
  EXPECT_THROW(less(Value::string("a"), Value::integer(1)), TemplateError);
}

TEST(Repr, DoublesReadBackAndLookLikePythons) {
  EXPECT_EQ(repr_real(0.1), "0.1");
  EXPECT_EQ(repr_real(1e16), "1e+16");
  EXPECT_EQ(repr_real(123456789012345.0), "123456789012345.0");
  EXPECT_EQ(repr_real(0.0001), "0.0001");
  EXPECT_EQ(repr_real(0.00001), "1e-05");
  EXPECT_EQ(repr_real(-0.0), "-0.0");
  const unsigned seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t bits = random();
    double value;
    static_assert(sizeof bits == sizeof value);
    std::memcpy(&value, &bits, sizeof value);
    if (std::isnan(value)) continue;
    EXPECT_EQ(std::strtod(repr_real(value).c_str(), nullptr), value);
  }
}

TEST(Repr, StringsChooseTheirQuotes) {
  EXPECT_EQ(repr_text("a"), "'a'");
  EXPECT_EQ(repr_text("it's"), "\"it's\"");
  EXPECT_EQ(repr_text("'\""), "'\\'\"'");
  EXPECT_EQ(repr_text("\n\x01é\xe2\x80\x8b"), "'\\n\\x01é\\u200b'");
}

TEST(Budget, MemoryIsGivenBack) {
  const Budget budget({.memory = 100000});
  for (int i = 0; i < 1000; ++i) Value::string(std::string(50000, 'x'));
  const Value held = Value::string(std::string(60000, 'x'));
  EXPECT_THROW(Value::string(std::string(60000, 'x')), TemplateError);
}

}  // namespace
}  // namespace millrace::jinja
