// The shapes of known models, for `synthetic:SHAPE[:DTYPE]`.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace millrace {

struct SyntheticShape {
  std::string_view name;          // "llama-3-8b"
  std::string_view architecture;  // in GGUF's spelling
  int64_t vocab, hidden, layers, heads, kv_heads, head_dim, feed_forward, context;
  float rope_base;
  bool tied;                                         // the embedding is also the output matrix
  float rope_factor = 0;                             // of Llama 3.1's rope scaling, gpt-oss's YaRN; 0: none
  int64_t window = 0;                                // sliding-window attention; 0: none
  int64_t global_head_dim = 0, global_kv_heads = 0;  // Gemma 4: of layers without window
  // Mixtures: experts of a layer (0: dense), those that a token uses, the width of one, the width of the shared expert
  // (0: none), and the number of dense layers at the beginning.
  int64_t experts = 0, experts_used = 0, expert_width = 0, shared_width = 0, dense_layers = 0;
  // Latent attention: elements of the latent (0: none), of the latent of queries (0: none), of the rotary part and of a
  // value. head_dim is the size of a query.
  int64_t latent = 0, query_latent = 0, rotary = 0, value = 0;
  // Gated delta nets in three of four layers: key and value heads, each 128 wide; 0: none.
  int64_t delta_key_heads = 0, delta_value_heads = 0;
  // Hybrids, a letter for each layer: * attention, M a Mamba-2 mixer, C a short convolution, - a feed-forward alone.
  // Empty: all layers have attention.
  std::string_view kinds = {};
  int64_t mixer_heads = 0, mixer_head_dim = 0, mixer_groups = 0, mixer_state = 0, taps = 0;
};

std::span<const SyntheticShape> synthetic_shapes();
const SyntheticShape* find_synthetic_shape(std::string_view name);  // null: unknown

}  // namespace millrace
