#include "hardware/isa.h"

#include <array>
#include <utility>

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace millrace {
namespace {

constexpr std::pair<Isa, std::string_view> kNames[] = {
    {Isa::Neon, "neon"}, {Isa::Fp16, "fp16"},     {Isa::Fhm, "fhm"},         {Isa::DotProd, "dotprod"},
    {Isa::I8mm, "i8mm"}, {Isa::Bf16, "bf16"},     {Isa::Sve, "sve"},         {Isa::Sse4, "sse4"},
    {Isa::Avx2, "avx2"}, {Isa::Avx512, "avx512"}, {Isa::Avx512Vnni, "vnni"}, {Isa::Amx, "amx"},
};

#if defined(__aarch64__)

// Bits of the auxiliary vector, as in the kernel's ABI; older headers lack some names.
constexpr unsigned long kHwcapAsimd = 1ul << 1, kHwcapAsimdHp = 1ul << 10, kHwcapAsimdDp = 1ul << 20,
                        kHwcapSve = 1ul << 22, kHwcapAsimdFhm = 1ul << 23;
constexpr unsigned long kHwcap2I8mm = 1ul << 13, kHwcap2Bf16 = 1ul << 14;

IsaSet ask_the_machine() {
  const unsigned long hwcap = ::getauxval(AT_HWCAP), hwcap2 = ::getauxval(AT_HWCAP2);
  IsaSet set;
  if ((hwcap & kHwcapAsimd) == 0) return set;
  set = set.with(Isa::Neon);
  if ((hwcap & kHwcapAsimdHp) != 0) set = set.with(Isa::Fp16);
  if ((hwcap & kHwcapAsimdFhm) != 0) set = set.with(Isa::Fhm);
  if ((hwcap & kHwcapAsimdDp) != 0) set = set.with(Isa::DotProd);
  if ((hwcap & kHwcapSve) != 0) set = set.with(Isa::Sve);
  if ((hwcap2 & kHwcap2I8mm) != 0) set = set.with(Isa::I8mm);
  if ((hwcap2 & kHwcap2Bf16) != 0) set = set.with(Isa::Bf16);
  return set;
}

constexpr IsaSet kNeon = IsaSet().with(Isa::Neon);
constexpr IsaSet kDotProd = kNeon.with(Isa::Fp16).with(Isa::DotProd);
constexpr IsaSet kI8mm = kDotProd.with(Isa::Fhm).with(Isa::I8mm).with(Isa::Bf16).with(Isa::Sve);
constexpr IsaLevel kLevels[] = {{"scalar", {}}, {"neon", kNeon}, {"dotprod", kDotProd}, {"i8mm", kI8mm}};

#elif defined(__x86_64__)

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

// All of `bits` are set in `word`.
constexpr bool all(uint64_t word, std::initializer_list<int> bits) {
  for (int bit : bits) {
    if ((word >> bit & 1) == 0) return false;
  }
  return true;
}

// Register files that the operating system saves on a context switch (XCR0).
uint64_t saved_by_the_kernel(const Registers& leaf1) {
  if (!all(leaf1.c, {27})) return 0;  // OSXSAVE
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Linux enables AMX tile registers (8 KB) only for processes that request them.
bool ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

IsaSet ask_the_machine() {
  const Registers one = cpuid(1), seven = cpuid(7);
  const uint64_t saved = saved_by_the_kernel(one);
  IsaSet set;
  if (!all(one.c, {0, 9, 19, 20, 23})) return set;  // SSE3, SSSE3, SSE4.1, SSE4.2, POPCNT
  set = set.with(Isa::Sse4);
  const bool ymm = all(saved, {1, 2}) && all(one.c, {12, 28, 29});  // FMA, AVX, F16C
  if (!ymm || !all(seven.b, {3, 5, 8})) return set;                 // BMI1, AVX2, BMI2
  set = set.with(Isa::Avx2);
  const bool zmm = all(saved, {5, 6, 7});
  if (!zmm || !all(seven.b, {16, 17, 30, 31})) return set;  // AVX512F, DQ, BW, VL
  set = set.with(Isa::Avx512);
  if (!all(seven.c, {11})) return set;  // AVX512_VNNI
  set = set.with(Isa::Avx512Vnni);
  // AMX-BF16, AMX-TILE, AMX-INT8, and AVX512_BF16, which comes with them.
  const bool tiles = all(saved, {17, 18}) && all(seven.d, {22, 24, 25}) && all(cpuid(7, 1).a, {5});
  if (tiles && ask_for_tiles()) set = set.with(Isa::Amx);
  return set;
}

constexpr IsaSet kSse4 = IsaSet().with(Isa::Sse4);
constexpr IsaSet kAvx2 = kSse4.with(Isa::Avx2);
constexpr IsaSet kAvx512 = kAvx2.with(Isa::Avx512);
constexpr IsaSet kVnni = kAvx512.with(Isa::Avx512Vnni);
constexpr IsaLevel kLevels[] = {{"scalar", {}},      {"sse4", kSse4}, {"avx2", kAvx2},
                                {"avx512", kAvx512}, {"vnni", kVnni}, {"amx", kVnni.with(Isa::Amx)}};

#else

IsaSet ask_the_machine() { return {}; }
constexpr IsaLevel kLevels[] = {{"scalar", {}}};

#endif

}  // namespace

std::span<const IsaLevel> isa_levels() { return kLevels; }

IsaSet detect_isa() {
  static const IsaSet found = ask_the_machine();
  return found;
}

std::string to_string(IsaSet set) {
  std::string text;
  for (const auto& [isa, name] : kNames) {
    if (!set.has(isa)) continue;
    if (!text.empty()) text += ' ';
    text += name;
  }
  return text.empty() ? "scalar" : text;
}

}  // namespace millrace
