// The tile registers of AMX. Included inside a target region.
#pragma once

// All eight in full: 16 rows of 64 bytes.
inline void load_tile_config() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } const config;
  _tile_loadconfig(&config);
}

inline void release_tiles() { _tile_release(); }
