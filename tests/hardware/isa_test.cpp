#include "hardware/isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

namespace millrace {
namespace {

TEST(Isa, LevelsNestAndStartWithNothing) {
  const auto levels = isa_levels();
  ASSERT_GE(levels.size(), 1u);
  EXPECT_EQ(levels.front().name, "scalar");
  EXPECT_EQ(levels.front().allowed, IsaSet());
  for (size_t i = 1; i < levels.size(); ++i) {
    EXPECT_TRUE(levels[i].allowed.includes(levels[i - 1].allowed)) << levels[i].name;
    EXPECT_NE(levels[i].allowed, levels[i - 1].allowed) << levels[i].name;
  }
}

TEST(Isa, TheHighestLevelAllowsAllThatAMachineCanHave) {
  EXPECT_TRUE(isa_levels().back().allowed.includes(detect_isa())) << to_string(detect_isa());
}

TEST(Isa, SetsPrintInOrder) {
  EXPECT_EQ(to_string(IsaSet()), "scalar");
  EXPECT_EQ(to_string(IsaSet().with(Isa::I8mm).with(Isa::Neon)), "neon i8mm");
  EXPECT_EQ(to_string(IsaSet().with(Isa::Amx).with(Isa::Avx512Vnni)), "vnni amx");
}

TEST(Isa, BothIsTheIntersection) {
  const IsaSet a = IsaSet().with(Isa::Neon).with(Isa::DotProd), b = IsaSet().with(Isa::DotProd).with(Isa::Bf16);
  EXPECT_EQ(a.both(b), IsaSet().with(Isa::DotProd));
  EXPECT_FALSE(a.includes(b));
}

std::set<std::string> kernel_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("Features") && !line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(Isa, DetectionAgreesWithTheKernel) {
  const auto flags = kernel_flags();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags here";
  const auto listed = [&](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(), [&](const char* name) { return flags.count(name) != 0; });
  };
  const IsaSet isa = detect_isa();
#if defined(__aarch64__)
  EXPECT_EQ(isa.has(Isa::Neon), listed({"asimd"}));
  EXPECT_EQ(isa.has(Isa::Fp16), listed({"asimdhp"}));
  EXPECT_EQ(isa.has(Isa::DotProd), listed({"asimddp"}));
  EXPECT_EQ(isa.has(Isa::I8mm), listed({"i8mm"}));
  EXPECT_EQ(isa.has(Isa::Bf16), listed({"bf16"}));
  EXPECT_EQ(isa.has(Isa::Sve), listed({"sve"}));
#elif defined(__x86_64__)
  EXPECT_EQ(isa.has(Isa::Sse4), listed({"sse4_2"}));
  EXPECT_EQ(isa.has(Isa::Avx2), listed({"avx2", "fma", "f16c"}));
  EXPECT_EQ(isa.has(Isa::Avx512), listed({"avx512f", "avx512bw", "avx512vl", "avx512dq"}));
  EXPECT_EQ(isa.has(Isa::Avx512Vnni), listed({"avx512f", "avx512_vnni"}));
  EXPECT_TRUE(!isa.has(Isa::Amx) || listed({"amx_tile", "amx_int8", "amx_bf16"}));
#else
  EXPECT_EQ(isa, IsaSet());
#endif
}

}  // namespace
}  // namespace millrace
