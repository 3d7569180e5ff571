// The tile registers of AMX. Included where the compiler may use them: in a target region, or a file built for them.
#pragma once

// All eight in full: 16 rows of 64 bytes. A constant of the program: GCC 12 believes that only the first 8 bytes are
// read, and would not write the rest of a local one.
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

// Between writing numbers and loading tiles of them: GCC does not know that a load reads memory.
inline void finish_writes() { asm volatile("" ::: "memory"); }
