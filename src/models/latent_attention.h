// Multi-head latent attention (MLA): keys and values of all heads are products of one latent row per token. The cache
// holds the latent row and a rotary part that all heads share.
//
// Decodes run in the absorbed form: the matrix that would expand a latent row to a head's key multiplies the head's
// query instead, and the one for values multiplies the head's sum of latent rows. Attention then has one KV head, whose
// key is [latent | rotary part] and whose value is the latent. Prompt chunks of many rows run in the materialised form
// (kernels/latent_prompt) where the plan expects it to be faster.
#pragma once

#include "models/blocks.h"

namespace millrace {

struct LatentSizes {
  int heads = 0;
  int plain = 0, rotary = 0;  // parts of a head's query without and with RoPE
  int value = 0;              // of a head
  int64_t latent = 0;
  int64_t query_latent = 0;  // of the low-rank query projection, if the file has one

  int query() const { return plain + rotary; }
  PagedShape state() const { return {1, static_cast<int>(latent) + rotary, static_cast<int>(latent), true}; }
};

// Reads the sizes; `usual` has the defaults of a Hugging Face config. Sets the head sizes of `config`.
LatentSizes read_latent_sizes(const WeightSource& source, const LatentSizes& usual, DecoderConfig& config);

// Factor of the scores: 1 / sqrt(query size), times YaRN's factor for all dimensions.
float latent_score_scale(const WeightSource& source, const LatentSizes& sizes);
// RoPE of the rotary parts.
RopeFrequencies read_latent_rope(const WeightSource& source, const DecoderConfig& config);

struct LatentAttention {
  LatentSizes sizes;
  // With a low-rank query: [query_latent + latent + rotary, hidden], and `query` is [heads * query, query_latent].
  // Otherwise [heads * query + latent + rotary, hidden], and `query` is null.
  const Linear* down = nullptr;
  const Vector* query_norm = nullptr;  // [query_latent]
  const Linear* query = nullptr;
  const Vector* norm = nullptr;       // [latent]
  const Grouped* absorb = nullptr;    // [heads][latent, plain]
  const Grouped* to_value = nullptr;  // [heads][value, latent]
};
// All matrices but the output's, under their usual names.
LatentAttention load_latent_attention(Weights::Layer& at, const DecoderConfig& config, const LatentSizes& sizes);

// Which slices of a pass run in which form, in all layers alike.
struct LatentForms {
  size_t absorbed = 0;  // slices; those behind them are prompt chunks in the materialised form
  Routing by_head;      // of the absorbed rows: grouped linear layers with a matrix per head

  int64_t rows() const { return by_head.groups > 0 ? by_head.rows / by_head.groups : 0; }  // absorbed
};
LatentForms choose_latent_forms(Pass& pass, const LatentSizes& sizes, int state);

// Attention over one latent state, without the output matrix: [rows, heads * value].
Matrix latent_attention_block(Pass& pass, const LatentAttention& attention, const Normed& x, int state,
                              const Rope& rope, const AttentionSettings& settings, const LatentForms& forms);

}  // namespace millrace
