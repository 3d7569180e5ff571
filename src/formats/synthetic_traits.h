// Questions about a synthetic shape that both its keys and its tensors depend on.
#pragma once

#include "formats/synthetic_shapes.h"

namespace millrace {

inline bool is_gemma(const SyntheticShape& s) { return s.architecture.starts_with("gemma"); }
inline bool is_gpt_oss(const SyntheticShape& s) { return s.architecture == "gpt-oss"; }

inline constexpr int64_t kDeltaDim = 128, kDeltaTaps = 4;
inline bool has_delta_nets(const SyntheticShape& s) { return s.delta_key_heads > 0; }
inline bool is_delta_net(const SyntheticShape& s, int64_t layer) { return has_delta_nets(s) && (layer + 1) % 4 != 0; }

// Gemma 4: every sixth layer attends to the whole context and has its own head size and number of KV heads.
inline bool is_global(const SyntheticShape& s, int64_t layer) { return s.global_head_dim > 0 && (layer + 1) % 6 == 0; }

// The letter of a layer in SyntheticShape::kinds.
inline char kind_of(const SyntheticShape& s, int64_t layer) {
  return s.kinds.empty() ? '*' : s.kinds[static_cast<size_t>(layer)];
}
// Whether the layer has a feed-forward. Nemotron-H has one block a layer, Mamba-2 only mixers.
inline bool feeds(const SyntheticShape& s, int64_t layer) {
  if (s.architecture == "nemotron_h") return kind_of(s, layer) == '-';
  return s.architecture != "mamba2";
}

}  // namespace millrace
