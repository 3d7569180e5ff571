// Paged keys and values of all layers: storage for a fixed number of pages, taken once from the memory plan.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "cache/block_pool.h"
#include "cache/block_table.h"
#include "kernels/attention/attention.h"
#include "tensor/arena.h"

namespace millrace {

struct KvShape {  // of one layer
  int kv_heads = 0, head_dim = 0;
};

struct KvOptions {
  DType dtype = DType::F16;
  int block_size = 64;
  int32_t tokens = 0;  // capacity over all sequences
};

class KvCache {
 public:
  KvCache(std::vector<KvShape> layers, const KvOptions& options, Memory& memory = host_memory());

  static size_t bytes_per_token(const std::vector<KvShape>& layers, DType dtype);

  KvLayer layer(int i) const { return layers_[static_cast<size_t>(i)]; }
  BlockPool& blocks() { return blocks_; }
  BlockTable new_table(int32_t longest) { return {blocks_, options_.block_size, longest}; }
  void populate(ThreadPool& pool);           // on the host: all of it is there before its first use
  void copy_page(int32_t from, int32_t to);  // keys and values of all layers
  const KvOptions& options() const { return options_; }
  int32_t capacity() const { return blocks_.size() * options_.block_size; }
  size_t bytes() const { return arena_.capacity(); }

 private:
  KvOptions options_;
  BlockPool blocks_;
  Memory& memory_;
  Arena arena_;
  std::vector<KvLayer> layers_;
};

}  // namespace millrace
