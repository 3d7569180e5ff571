// Hyper-parameters that nearly every decoder has, read from GGUF and Hugging Face keys. Checked before any weight is
// read.
#pragma once

#include <cstdint>
#include <string>

#include "formats/weight_source.h"

namespace millrace {

struct DecoderConfig {
  std::string architecture;
  int64_t vocab = 0, layers = 0, hidden = 0, feed_forward = 0;
  int heads = 0, kv_heads = 0, head_dim = 0, rotary_dim = 0;
  int64_t context = 0;             // trained context length
  bool learned_positions = false;  // one vector per position, so the context cannot be exceeded
  int window = 0;                  // sliding-window attention; 0: none
  float norm_epsilon = 1e-5f;
  // Mixtures of experts: experts of a layer, those that each token uses, and the width of one; 0: a dense model.
  int64_t experts = 0, experts_per_row = 0, expert_width = 0;

  int64_t q_dim() const { return int64_t(heads) * head_dim; }
  int64_t kv_dim() const { return int64_t(kv_heads) * head_dim; }
  int64_t qkv_dim() const { return q_dim() + 2 * kv_dim(); }
};

// Hugging Face keys, for architectures with other names than the usual ones.
struct DecoderKeys {
  std::string_view layers = "num_hidden_layers", hidden = "hidden_size", feed_forward = "intermediate_size",
                   heads = "num_attention_heads", kv_heads = "num_key_value_heads", head_dim = "head_dim",
                   context = "max_position_embeddings", norm_epsilon = "rms_norm_eps", vocab = "vocab_size";
  std::string_view gguf_norm_epsilon = "attention.layer_norm_rms_epsilon";
  // Defaults of missing values: some configs leave out the defaults of transformers. 0: the value is required.
  int64_t usual_heads = 0, usual_kv_heads = 0, usual_head_dim = 0, usual_context = 0, usual_vocab = 0;
  int64_t usual_feed_forward = 0, usual_layers = 0;
  double usual_epsilon = 1e-6;
  bool any_value_size = false;  // the architecture reads the size of values itself
  double usual_rotary = 1;      // the part of each head that RoPE rotates; of Hugging Face configs only
};

DecoderConfig read_decoder_config(const WeightSource& source, const DecoderKeys& keys = {});

// Throws for a setting that would change results and is not implemented. `what` names the setting.
[[noreturn]] void refuse(const WeightSource& source, const std::string& what);

}  // namespace millrace
