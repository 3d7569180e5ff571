// The cost of AMX tiles next to their products: nanoseconds per step of four int8 products, with operands from several
// cache levels.
//   g++ -O3 -std=c++20 -I src -mamx-tile -mamx-int8 -mavx512f -mavx512dq bench/x86/tile_rates.cpp
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "hardware/amx-inl.h"

namespace {

constexpr int64_t kStep = 2048;  // bytes of each operand per step: two tiles

struct Loads {
  bool w = true, x = true;
  int64_t w_bytes = 16 << 10, x_bytes = 256 << 10;  // working set of each operand
  int64_t ahead = 0;                                // prefetch distance in bytes of x
  int settle = 0;  // every four steps: 1 stores the sums, 2 also scales them, 3 also adds them up
};

// All loads of a step before its products; bench/x86/tile_orders.cpp has other orders.
inline void step(const Loads& loads, const char* w, const char* x) {
  if (loads.w) {
    _tile_loadd(6, w, 64);
    _tile_loadd(7, w + 1024, 64);
  }
  if (loads.x) _tile_loadd(4, x, 64);
  _tile_dpbssd(0, 4, 6);
  _tile_dpbssd(1, 4, 7);
  if (loads.x) _tile_loadd(5, x + 1024, 64);
  _tile_dpbssd(2, 5, 6);
  _tile_dpbssd(3, 5, 7);
}

void scale(const int32_t* sums, float* to, int from, int until, bool add) {
  const __m512 factor = _mm512_set1_ps(0.5f);
  for (int i = from; i < until; ++i) {
    const __m512 fresh = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + 16 * i)), factor);
    _mm512_store_ps(to + 16 * i, add ? _mm512_fmadd_ps(fresh, factor, _mm512_load_ps(to + 16 * i)) : fresh);
  }
}

void multiply(const char* w, const char* x, int64_t steps, const Loads& loads, int32_t* sums, float* to) {
  for (int64_t i = 0, at_w = 0, at_x = 0; i < steps; ++i) {
    step(loads, w + at_w, x + at_x);
    for (int64_t line = 0; loads.ahead > 0 && line < kStep; line += 64) {
      _mm_prefetch(x + at_x + loads.ahead + line, _MM_HINT_T0);
    }
    at_w = at_w + kStep < loads.w_bytes ? at_w + kStep : 0;
    at_x = at_x + kStep < loads.x_bytes ? at_x + kStep : 0;
    int32_t *fresh = sums + i / 4 % 2 * 1024, *older = sums + (i / 4 + 1) % 2 * 1024;
    if (loads.settle > 1)
      scale(older, to, static_cast<int>(i % 4 * 16), static_cast<int>(i % 4 * 16 + 16), loads.settle > 2);
    if (loads.settle > 0 && i % 4 == 3) {
      _tile_stored(0, fresh, 64);
      _tile_stored(1, fresh + 256, 64);
      _tile_stored(2, fresh + 512, 64);
      _tile_stored(3, fresh + 768, 64);
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
  }
}

void measure(const char* name, const Loads& loads) {
  constexpr int64_t kSteps = 40000;
  auto* memory = static_cast<char*>(std::aligned_alloc(4096, 4 << 20));
  for (int i = 0; i < 4 << 20; ++i) memory[i] = static_cast<char>(i % 7);
  double best = 1e9;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    multiply(memory, memory + (1 << 20), kSteps, loads, reinterpret_cast<int32_t*>(memory + (512 << 10)),
             reinterpret_cast<float*>(memory + (512 << 10) + 8192 + 640));
    const double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
    best = ns / kSteps < best ? ns / kSteps : best;
  }
  std::printf("%-44s %7.1f ns a step\n", name, best);
  std::free(memory);
}

}  // namespace

int main() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return std::puts("no AMX here"), 1;
  load_tile_config();
  measure("products alone", {.w = false, .x = false});
  measure("weights from L1", {.x = false});
  measure("weights and x from L1", {.w_bytes = 16 << 10, .x_bytes = 16 << 10});
  measure("weights from L1, x from L2", {});
  measure("the same, x fetched 2 KB ahead", {.ahead = 2 << 10});
  measure("the same, x fetched 8 KB ahead", {.ahead = 8 << 10});
  measure("weights and x from L2", {.w_bytes = 256 << 10});
  measure("x from 1 MB of L2", {.x_bytes = 1 << 20});
  measure("x from L1, sums stored", {.x_bytes = 16 << 10, .settle = 1});
  measure("x from L1, sums scaled", {.x_bytes = 16 << 10, .settle = 2});
  measure("x from L1, sums scaled and added", {.x_bytes = 16 << 10, .settle = 3});
  measure("x from L2, sums scaled and added", {.settle = 3});
  measure("the same, x fetched 8 KB ahead", {.ahead = 8 << 10, .settle = 3});
}
