// Instruction sets that kernels are written for, and sets of them: what a machine has, or what a user allows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace millrace {

enum class Isa : uint8_t {
  // aarch64. fp16: arithmetic on halves; fhm: products of halves added in f32 (FMLAL); bf16: matrix instructions
  // (BFMMLA)
  Neon,
  Fp16,
  Fhm,
  DotProd,
  I8mm,
  Bf16,
  Sve,
  Sse4,
  Avx2,
  Avx512,
  Avx512Vnni,
  Amx,  // x86-64. avx2 includes FMA and F16C; avx512 includes F, BW, VL and DQ; amx includes int8 and bf16
};

class IsaSet {
 public:
  constexpr bool has(Isa isa) const { return (bits_ >> static_cast<int>(isa) & 1) != 0; }
  constexpr IsaSet with(Isa isa) const { return IsaSet(bits_ | 1u << static_cast<int>(isa)); }
  constexpr IsaSet both(IsaSet other) const { return IsaSet(bits_ & other.bits_); }
  constexpr bool includes(IsaSet other) const { return (bits_ & other.bits_) == other.bits_; }
  constexpr IsaSet() = default;
  friend constexpr bool operator==(IsaSet, IsaSet) = default;

 private:
  constexpr explicit IsaSet(uint32_t bits) : bits_(bits) {}
  uint32_t bits_ = 0;
};

// Levels for --isa, weakest first: "scalar" allows no instruction set, each level includes those before it.
struct IsaLevel {
  std::string_view name;
  IsaSet allowed;
};
std::span<const IsaLevel> isa_levels();  // of the architecture this binary is built for
IsaSet detect_isa();                     // supported by the CPU and enabled by the operating system
std::string to_string(IsaSet set);       // "neon dotprod i8mm bf16"; "scalar" when empty

}  // namespace millrace
