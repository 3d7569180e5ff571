#include "sampling/stop_strings.h"
#include "fresh_seed.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace millrace {
namespace {

// The definition of the cut, byte by byte.
std::string cut_naively(const std::string& text, const std::vector<std::string>& stops, bool& stopped) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const auto& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) {
      stopped = true;
      return text.substr(0, end - longest);
    }
  }
  stopped = false;
  return text;
}

TEST(StopStrings, CutsAcrossPieces) {
  StopStrings stop({"</s>", "User:"});
  EXPECT_EQ(stop.push("Hello <"), "Hello ");
  EXPECT_EQ(stop.push("/"), "");
  EXPECT_EQ(stop.push("b> Us"), "</b> ");
  EXPECT_EQ(stop.push("er"), "");
  EXPECT_FALSE(stop.stopped());
  EXPECT_EQ(stop.push(": hi"), "");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.push("more"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStrings, WhatWasHeldBackComesOutAtTheEnd) {
  StopStrings stop({"abc"});
  EXPECT_EQ(stop.push("xab"), "x");
  EXPECT_EQ(stop.finish(), "ab");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStrings, NothingToStopHoldsNothingBack) {
  StopStrings stop({});
  EXPECT_EQ(stop.push("anything"), "anything");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStrings, AnEmptyStringIsRefused) { EXPECT_THROW(StopStrings({"a", ""}), Error); }

TEST(StopStrings, IsThatOfTheDefinitionHoweverTheTextIsCut) {
  for (int round = 0; round < 3000; ++round) {
    const unsigned seed = fresh_seed();
    std::mt19937 random(seed);
    const auto word = [&](size_t longest, size_t shortest) {
      std::string made(shortest + random() % longest, 'a');
      for (char& c : made) c = static_cast<char>('a' + random() % 2);
      return made;
    };
    std::vector<std::string> stops(random() % 4);
    for (auto& stop : stops) stop = word(8, 1);
    const std::string text = word(40, 0);
    bool stopped = false;
    const std::string expected = cut_naively(text, stops, stopped);
    StopStrings matcher(stops);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t length = random() % 5;
      out += matcher.push(std::string_view(text).substr(at, length));
      ASSERT_TRUE(expected.starts_with(out)) << "seed " << seed << ": said too much";
      at += length;
    }
    out += matcher.finish();
    EXPECT_EQ(out, expected) << "seed " << seed;
    EXPECT_EQ(matcher.stopped(), stopped) << "seed " << seed;
  }
}

TEST(StopStrings, HoldsBackNoMoreThanMayMatch) {
  StopStrings stop({"aab"});
  EXPECT_EQ(stop.push("aaaa"), "aa");
  EXPECT_EQ(stop.push("c"), "aac");
}

}  // namespace
}  // namespace millrace
