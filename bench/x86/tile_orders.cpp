// Whether loads of AMX tiles hide behind products: nanoseconds per step of int8 products whose loads come in several
// orders, strides and alignments, all from the L1 cache.
//   g++ -O3 -std=c++20 -I src -mamx-tile -mamx-int8 bench/x86/tile_orders.cpp
#include <immintrin.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "hardware/amx-inl.h"

namespace {

constexpr int64_t kSteps = 20000;

// Cycles through `bytes` of each operand; step(w, x) consumes `per_step` bytes of both.
template <class Step>
void measure(const char* name, int products, const Step& step, int64_t bytes = 16 << 10, int64_t per_step = 2048,
             int64_t shift = 0) {
  constexpr size_t kMemory = 4 << 20;
  auto* memory = static_cast<char*>(std::aligned_alloc(2 << 20, kMemory));
  ::madvise(memory, kMemory, MADV_HUGEPAGE);
  for (size_t i = 0; i < kMemory; ++i) memory[i] = static_cast<char>(i % 7);
  const char *w = memory + shift, *x = memory + (1 << 20) + (16 << 10) + shift;
  double best = 1e9;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0, at = 0; i < kSteps; ++i) {
      step(w + at, x + at);
      at = at + per_step < bytes ? at + per_step : 0;
    }
    const double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
    best = ns / kSteps < best ? ns / kSteps : best;
  }
  std::printf("%-62s %7.1f ns", name, best);
  if (products > 0)
    std::printf("  %5.1f ns a product, %3.0f %% of its rate alone", best / products, 600 / (best / products));
  std::puts("");
  std::free(memory);
}

void loads_alone() {
  measure("one load", 0, [](const char* w, const char*) { _tile_loadd(4, w, 64); });
  measure("four loads of four registers", 0, [](const char* w, const char* x) {
    _tile_loadd(4, w, 64);
    _tile_loadd(5, w + 1024, 64);
    _tile_loadd(6, x, 64);
    _tile_loadd(7, x + 1024, 64);
  });
  measure("four loads of one register", 0, [](const char* w, const char* x) {
    _tile_loadd(4, w, 64);
    _tile_loadd(4, w + 1024, 64);
    _tile_loadd(4, x, 64);
    _tile_loadd(4, x + 1024, 64);
  });
  measure("four streaming loads", 0, [](const char* w, const char* x) {
    _tile_stream_loadd(4, w, 64);
    _tile_stream_loadd(5, w + 1024, 64);
    _tile_stream_loadd(6, x, 64);
    _tile_stream_loadd(7, x + 1024, 64);
  });
  const auto one = [](int64_t stride) {
    return [stride](const char* w, const char* x) {
      _tile_loadd(4, w, stride);
      _tile_loadd(5, w + 64, stride);
      _tile_loadd(6, x, stride);
      _tile_loadd(7, x + 64, stride);
    };
  };
  measure("four loads, rows 128 bytes apart", 0, one(128), 4 << 10, 128);
  measure("four loads, rows 192 bytes apart", 0, one(192), 4 << 10, 128);
  measure("four loads, rows 576 bytes apart", 0, one(576), 1 << 10, 128);
  measure("four loads, rows 1024 bytes apart", 0, one(1024), 1 << 10, 128);
  measure("four loads, rows 4096 bytes apart", 0, one(4096), 1 << 10, 128);
  measure("four loads, 32 bytes off a line", 0, one(64), 8 << 10, 2048, 32);
}

// Loads of registers that no product uses: measures port contention alone.
void loads_beside() {
  const auto products = [] {
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 5);
    _tile_dpbssd(2, 4, 5);
    _tile_dpbssd(3, 4, 5);
  };
  measure("four products", 4, [&](const char*, const char*) { products(); });
  measure("two loads beside, never used", 4, [&](const char* w, const char* x) {
    _tile_loadd(6, w, 64);
    _tile_loadd(7, x, 64);
    products();
  });
  measure("four loads beside, never used", 4, [&](const char* w, const char* x) {
    _tile_loadd(6, w, 64);
    _tile_loadd(7, x, 64);
    products();
    _tile_loadd(6, w + 1024, 64);
    _tile_loadd(7, x + 1024, 64);
  });
  measure("one register loaded again for each product", 4, [](const char* w, const char* x) {
    _tile_loadd(4, w, 64);
    _tile_dpbssd(0, 4, 5);
    _tile_loadd(4, w + 1024, 64);
    _tile_dpbssd(1, 4, 5);
    _tile_loadd(4, x, 64);
    _tile_dpbssd(2, 4, 5);
    _tile_loadd(4, x + 1024, 64);
    _tile_dpbssd(3, 4, 5);
  });
  measure("two registers loaded in turns", 4, [](const char* w, const char* x) {
    _tile_loadd(4, w, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(5, w + 1024, 64);
    _tile_dpbssd(1, 5, 6);
    _tile_loadd(4, x, 64);
    _tile_dpbssd(2, 4, 6);
    _tile_loadd(5, x + 1024, 64);
    _tile_dpbssd(3, 5, 6);
  });
  measure("four registers loaded in turns", 4, [](const char* w, const char* x) {
    _tile_loadd(4, w, 64);
    _tile_dpbssd(0, 5, 6);
    _tile_loadd(5, w + 1024, 64);
    _tile_dpbssd(1, 6, 7);
    _tile_loadd(6, x, 64);
    _tile_dpbssd(2, 7, 4);
    _tile_loadd(7, x + 1024, 64);
    _tile_dpbssd(3, 4, 5);
  });
}

// Two tiles of x by two of weights: tiles 4 and 5 are x, 6 and 7 weights.
void two_by_two() {
  measure("2x2: loads where they are needed", 4, [](const char* w, const char* x) {
    _tile_loadd(6, w, 64);
    _tile_loadd(7, w + 1024, 64);
    _tile_loadd(4, x, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_loadd(5, x + 1024, 64);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  });
  measure("2x2: all loads first", 4, [](const char* w, const char* x) {
    _tile_loadd(6, w, 64);
    _tile_loadd(4, x, 64);
    _tile_loadd(7, w + 1024, 64);
    _tile_loadd(5, x + 1024, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  });
  measure("2x2: each loaded after its last use", 4, [](const char* w, const char* x) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_loadd(4, x, 64);
    _tile_dpbssd(3, 5, 7);
    _tile_loadd(7, w + 1024, 64);
    _tile_dpbssd(2, 5, 6);
    _tile_loadd(6, w, 64);
    _tile_loadd(5, x + 1024, 64);
  });
  measure("2x2: the same, streaming loads", 4, [](const char* w, const char* x) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_stream_loadd(4, x, 64);
    _tile_dpbssd(3, 5, 7);
    _tile_stream_loadd(7, w + 1024, 64);
    _tile_dpbssd(2, 5, 6);
    _tile_stream_loadd(6, w, 64);
    _tile_stream_loadd(5, x + 1024, 64);
  });
}

void other_blockings() {
  measure("2x1 with two sets of registers", 4, [](const char* w, const char* x) {
    _tile_loadd(5, x, 64);
    _tile_loadd(6, w, 64);
    _tile_loadd(7, w + 1024, 64);
    _tile_dpbssd(0, 2, 3);
    _tile_dpbssd(1, 2, 4);
    _tile_loadd(2, x + 1024, 64);
    _tile_loadd(3, w, 64);
    _tile_loadd(4, w + 1024, 64);
    _tile_dpbssd(0, 5, 6);
    _tile_dpbssd(1, 5, 7);
  });
  measure("3x1, x in two registers in turns", 6, [](const char* w, const char* x) {
    _tile_loadd(7, x, 64);
    _tile_dpbssd(0, 3, 4);
    _tile_loadd(4, w, 64);
    _tile_dpbssd(1, 3, 5);
    _tile_loadd(5, w + 1024, 64);
    _tile_dpbssd(2, 3, 6);
    _tile_loadd(6, w + 64, 64);
    _tile_loadd(3, x + 1024, 64);
    _tile_dpbssd(0, 7, 4);
    _tile_loadd(4, w + 128, 64);
    _tile_dpbssd(1, 7, 5);
    _tile_loadd(5, w + 192, 64);
    _tile_dpbssd(2, 7, 6);
    _tile_loadd(6, w + 256, 64);
  });
  measure("4x1, weights in two registers in turns", 4, [](const char* w, const char* x) {
    _tile_loadd(4, x, 64);
    _tile_loadd(6, w, 64);
    _tile_loadd(7, w + 1024, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(6, w + 64, 64);
    _tile_dpbssd(1, 4, 7);
    _tile_loadd(7, w + 128, 64);
    _tile_dpbssd(2, 4, 6);
    _tile_dpbssd(3, 4, 7);
  });
  measure("stored sums: four stores and four zeros a step of eight products", 8, [](const char*, const char*) {
    alignas(64) static int32_t sums[4][256];
    for (int i = 0; i < 2; ++i) {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, sums[0], 64);
    _tile_zero(0);
    _tile_stored(1, sums[1], 64);
    _tile_zero(1);
    _tile_stored(2, sums[2], 64);
    _tile_zero(2);
    _tile_stored(3, sums[3], 64);
    _tile_zero(3);
  });
}

}  // namespace

int main() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return std::puts("no AMX here"), 1;
  load_tile_config();
  loads_alone();
  loads_beside();
  two_by_two();
  other_blockings();
}
