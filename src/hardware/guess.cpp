#include <algorithm>
#include <list>
#include <mutex>

#include "hardware/ceilings.h"

namespace millrace {
namespace {

constexpr double kGigahertz = 2.6;

// Operations per cycle of one core; a multiply-add counts as two.
struct PerCycle {
  double int8, bf16, f16, f32;
};

PerCycle per_cycle(IsaSet isa) {
  if (isa.has(Isa::Amx)) return {2048, 1024, 64, 64};
  if (isa.has(Isa::Avx512Vnni)) return {256, 64, 64, 64};
  if (isa.has(Isa::Avx512)) return {128, 64, 64, 64};
  if (isa.has(Isa::Avx2)) return {64, 32, 32, 32};
  if (isa.has(Isa::Sse4)) return {32, 8, 8, 8};
  if (isa.has(Isa::I8mm)) return {256, isa.has(Isa::Bf16) ? 128.0 : 32.0, 64, 32};
  if (isa.has(Isa::DotProd)) return {64, 16, isa.has(Isa::Fp16) ? 32.0 : 16.0, 16};
  if (isa.has(Isa::Neon)) return {32, 16, 16, 16};
  return {4, 2, 2, 2};
}

}  // namespace

Ceilings guess_ceilings(const Hardware& hardware) {
  const double threads = std::min(hardware.threads, hardware.cores);
  const double ghz = kGigahertz * threads;
  const PerCycle ops = per_cycle(hardware.isa);
  Ceilings ceilings;
  ceilings.read_gbs = 16 * std::min(threads, 2 + threads / 4);  // a few cores saturate the memory bus
  ceilings.cache_gbs = 50 * threads;
  ceilings.int8_gops = ops.int8 * ghz;
  ceilings.bf16_gflops = ops.bf16 * ghz;
  ceilings.f16_gflops = ops.f16 * ghz;
  ceilings.f32_gflops = ops.f32 * ghz;
  ceilings.region_us = threads > 1 ? 1.5 : 0.05;
  return ceilings;
}

const Hardware& one_thread_of(const Hardware& cpu) {
  static std::mutex mutex;
  static std::list<Hardware> known;
  const std::lock_guard lock(mutex);
  for (const Hardware& hardware : known) {
    if (hardware.isa == cpu.isa) return hardware;
  }
  Hardware one = cpu;
  one.threads = one.cores = 1;
  one.ceilings = guess_ceilings(one);
  return known.emplace_back(std::move(one));
}

}  // namespace millrace
