// AMX tile registers. Include it inside a target region or in a file compiled for AMX.
#pragma once

// All eight tiles in full size: 16 rows of 64 bytes. The configuration is a static constant: GCC 12 assumes that only
// its first 8 bytes are read, and would not store the rest of a local one.
inline void load_tile_config() {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Config config;
  _tile_loadconfig(&config);
}

inline void release_tiles() { _tile_release(); }

// Use between stores and tile loads: GCC does not know that a tile load reads memory.
inline void finish_writes() { asm volatile("" ::: "memory"); }
