#include "hardware/roofline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

using testing::HasSubstr;

Hardware machine(double read, double int8, double bf16, double f32) {
  Hardware hardware;
  hardware.name = "Test <CPU>";
  hardware.threads = 2;
  hardware.ceilings.measured = true;
  hardware.ceilings.read_gbs = read;
  hardware.ceilings.int8_gops = int8;
  hardware.ceilings.bf16_gflops = bf16;
  hardware.ceilings.f16_gflops = hardware.ceilings.f32_gflops = f32;
  hardware.ceilings.read_by_threads = {{1, read / 2}, {2, read}};
  return hardware;
}

TEST(Roofline, TextShowsEveryRoofThatDiffers) {
  const std::string text = roofline_text(machine(50, 1328, 656, 166));
  EXPECT_THAT(text, HasSubstr("int8 1.33 TOP/s"));
  EXPECT_THAT(text, HasSubstr("bf16 656 GOP/s"));
  EXPECT_THAT(text, HasSubstr("f32 166 GOP/s"));
  EXPECT_THAT(text, testing::Not(HasSubstr("f16 166")));
  EXPECT_THAT(text, HasSubstr("by threads 1: 25.0, 2: 50.0"));
  EXPECT_THAT(text, HasSubstr("at 14 rows at once, 4-bit ones at 7"));
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_GE(lines, 12);
  EXPECT_LE(lines, 18);
}

TEST(Roofline, AnyProportionsCanBeDrawn) {
  for (double int8 : {0.5, 4.0, 900.0, 1e6}) {
    for (double read : {0.1, 20.0, 5000.0}) {
      const Hardware hardware = machine(read, int8, std::max(2.0, int8 / 2), 2.0);
      EXPECT_FALSE(roofline_text(hardware).empty());
      EXPECT_THAT(roofline_svg(hardware), testing::Not(HasSubstr("nan")));
      EXPECT_THAT(roofline_svg(hardware), testing::Not(HasSubstr("inf")));
    }
  }
}

TEST(Roofline, SvgIsOneDocumentWithItsTextEscaped) {
  const std::string svg = roofline_svg(machine(50, 1328, 656, 166));
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("Test CPU"));
  EXPECT_THAT(svg, HasSubstr("int8 1.33 TOP/s"));
}

}  // namespace
}  // namespace millrace
