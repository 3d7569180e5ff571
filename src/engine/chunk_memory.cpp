#include "engine/chunk_memory.h"

#include <algorithm>
#include <functional>

namespace millrace {
namespace {

uint64_t hash_of(std::span<const int32_t> prompt, const PrefixKey& key) {
  uint64_t hash = std::hash<std::string>()(key.adapter) + (key.long_rope ? 2 : 1);
  for (const int32_t token : prompt) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

// A run that resumed at a boundary of an earlier one computed the same chunks, so the earlier beginning stays valid.
void ChunkMemory::keep(std::span<const int32_t> prompt, const PrefixKey& key, Chunks chunks) {
  const uint64_t hash = hash_of(prompt, key);
  Bucket& bucket = buckets_[hash % buckets_.size()];
  auto entry = std::ranges::find(bucket, hash, &Entry::hash);
  if (entry == bucket.end()) {
    --entry;
  } else if (entry->chunks.last == chunks.last) {
    chunks.first = std::min(chunks.first, entry->chunks.first);
  }
  *entry = {hash, chunks};
  std::rotate(bucket.begin(), entry, entry + 1);
}

std::optional<ChunkMemory::Chunks> ChunkMemory::find(std::span<const int32_t> prompt, const PrefixKey& key) const {
  const uint64_t hash = hash_of(prompt, key);
  const Bucket& bucket = buckets_[hash % buckets_.size()];
  const auto entry = std::ranges::find(bucket, hash, &Entry::hash);
  if (entry == bucket.end()) return std::nullopt;
  return entry->chunks;
}

}  // namespace millrace
