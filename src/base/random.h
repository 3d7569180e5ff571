// Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011): a pure function of key and counter, so results do
// not depend on the order of calls or on threads.
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter, uint64_t stream = 0) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> x = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * x[0], b = uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x;
}

// In [0, 1), with all 53 bits of a double.
inline double random_unit(uint64_t key, uint64_t counter, uint64_t stream = 0) {
  const auto x = philox(key, counter, stream);
  return static_cast<double>((uint64_t{x[0]} << 32 | x[1]) >> 11) * 0x1p-53;
}

}  // namespace millrace
