// Remembers in which chunks the prompts of lone requests were computed. Kernels, and with them the rounding of a row,
// depend on the number of rows of a step. The same prompt on an idle server therefore resumes where one of its earlier
// chunks began and computes the rest in chunks of the same sizes, so that its logits are equal bit for bit.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/prefix_tree.h"

namespace millrace {

class ChunkMemory {
 public:
  struct Chunks {
    int32_t first = 0, last = 0;  // positions where the first and the last computed chunk began
  };
  void keep(std::span<const int32_t> prompt, const PrefixKey& key, Chunks chunks);
  std::optional<Chunks> find(std::span<const int32_t> prompt, const PrefixKey& key) const;

 private:
  // A prompt is known by its hash. A collision costs a few rows that are computed again, and the equality of bits.
  struct Entry {
    uint64_t hash = 0;
    Chunks chunks;
  };
  using Bucket = std::array<Entry, 8>;  // the newest first, so that two prompts of one bucket do not replace each other
  std::vector<Bucket> buckets_ = std::vector<Bucket>(512);
};

}  // namespace millrace
