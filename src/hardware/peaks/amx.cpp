#include <immintrin.h>

#include "hardware/peaks/peak.h"

namespace millrace {
namespace {

#include "hardware/amx-inl.h"

// Random operands: products of zeros draw less power and run faster on power-limited cores.
template <class Number>
struct alignas(64) Tile {
  Number values[1024 / sizeof(Number)];

  explicit Tile(Number (*make)(uint32_t)) {
    uint32_t state = 1;
    for (Number& value : values) value = make((state = state * 1664525 + 1013904223) >> 8);
  }
};

class Tiles {
 public:
  explicit Tiles(const void* numbers) {
    load_tile_config();
    finish_writes();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, numbers, 64);
    _tile_loadd(5, numbers, 64);
    _tile_loadd(6, numbers, 64);
    _tile_loadd(7, numbers, 64);
  }
  ~Tiles() { release_tiles(); }
  Tiles(const Tiles&) = delete;
};

int8_t some_int8(uint32_t random) { return static_cast<int8_t>(random); }
// Magnitudes within a factor of four of one, either sign.
uint16_t some_bf16(uint32_t random) { return static_cast<uint16_t>(0x3f00 + (random & 0x80ff)); }

void tdpbssd(int64_t rounds) {
  const Tile<int8_t> numbers(some_int8);
  const Tiles tiles(&numbers);
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
}

void tdpbf16ps(int64_t rounds) {
  const Tile<uint16_t> numbers(some_bf16);
  const Tiles tiles(&numbers);
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

constexpr IsaSet kAmx = IsaSet().with(Isa::Amx);

}  // namespace

constinit const Peak kAmxPeaks[2] = {
    {"tdpbssd", PeakKind::Int8, kAmx, 2.0 * 16 * 16 * 64 * 4, tdpbssd},
    {"tdpbf16ps", PeakKind::Bf16, kAmx, 2.0 * 16 * 16 * 32 * 4, tdpbf16ps},
};

}  // namespace millrace
