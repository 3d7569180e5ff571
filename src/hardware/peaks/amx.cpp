#include <immintrin.h>

#include "hardware/peaks/peak.h"

namespace millrace {
namespace {

// The 64 bytes that say which shape each tile register has; here all eight are full, 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

class Tiles {
 public:
  Tiles() {
    const TileConfig config;
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
};

void tdpbssd(int64_t rounds) {
  const Tiles tiles;
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
}

void tdpbf16ps(int64_t rounds) {
  const Tiles tiles;
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
