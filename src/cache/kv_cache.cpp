#include "cache/kv_cache.h"

#include "tensor/populate.h"

namespace millrace {
namespace {

int32_t blocks_for(const KvOptions& options) { return (options.tokens + options.block_size - 1) / options.block_size; }

size_t half_layer_bytes(const KvShape& shape, const KvOptions& options) {
  return static_cast<size_t>(blocks_for(options)) * static_cast<size_t>(options.block_size) *
         static_cast<size_t>(shape.kv_heads) * row_bytes(options.dtype, shape.head_dim);
}

size_t total_bytes(const std::vector<KvShape>& layers, const KvOptions& options) {
  size_t total = 0;
  for (const auto& shape : layers) total += 2 * Arena::padded(half_layer_bytes(shape, options));
  return total;
}

}  // namespace

KvCache::KvCache(std::vector<KvShape> layers, const KvOptions& options, Memory& memory)
    : options_(options),
      blocks_(blocks_for(options)),
      memory_(memory),
      arena_("the KV cache", total_bytes(layers, options), memory) {
  for (const auto& shape : layers) {
    KvLayer layer{options.dtype, shape.kv_heads, shape.head_dim, options.block_size, blocks_for(options)};
    layer.keys = arena_.take(half_layer_bytes(shape, options));
    layer.values = arena_.take(half_layer_bytes(shape, options));
    layers_.push_back(layer);
  }
}

void KvCache::populate(ThreadPool& pool) {
  if (!layers_.empty()) millrace::populate(layers_.front().keys, arena_.used(), pool);  // the arena's first bytes
}

void KvCache::copy_page(int32_t from, int32_t to) {
  for (const auto& layer : layers_) {
    const size_t bytes = layer.offset(1, 0, 0);
    for (std::byte* half : {layer.keys, layer.values})
      memory_.copy(half + layer.offset(to, 0, 0), half + layer.offset(from, 0, 0), bytes);
  }
}

size_t KvCache::bytes_per_token(const std::vector<KvShape>& layers, DType dtype) {
  size_t total = 0;
  for (const auto& shape : layers) total += 2 * static_cast<size_t>(shape.kv_heads) * row_bytes(dtype, shape.head_dim);
  return total;
}

}  // namespace millrace
