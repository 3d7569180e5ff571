// Draft heads: small models that guess the next tokens from the hidden states of another model, their target. EAGLE-3
// heads come in a Hugging Face folder of their own; multi-token prediction (MTP) heads are part of a checkpoint.
#pragma once

#include "models/decoder.h"

namespace millrace {

bool is_eagle3(const WeightSource& source);
bool carries_heads(const WeightSource& source);  // has MTP heads that can be run

// The hidden states that the heads of `source` read from a target with so many layers.
FeatureTaps head_taps(const WeightSource& source, int64_t target_layers);

// Declares the tensors and the state of the heads. `target` is loaded and outlives them: heads without an embedding or
// output matrix of their own use the target's.
std::unique_ptr<Model> make_draft_head(const WeightSource& source, Weights& weights, StateLayout& state,
                                       const Model& target);
HeadMaker make_eagle3;

// The target's token for each row of the heads' logits; empty: the same one.
std::vector<int32_t> draft_vocabulary(const WeightSource& source, int64_t target_vocab);

// The tensors of an MTP head besides its decoder layer.
struct NextTokenNames {
  TensorName embedding_norm, feature_norm, combine, norm, embedding, head;
  TensorName usual_norm;  // where `norm` is absent
};
// Under the names of DeepSeek and GLM, and of all GGUF files. `layer`: number of the head's layer.
NextTokenNames nextn_names(int64_t layer);
// `add` is added to the norms' weights.
void load_next_token_head(Decoder& model, Weights& weights, const NextTokenNames& names, const Model& target,
                          float add = 0);

}  // namespace millrace
