// The mixer of Mamba-2: a projection, a short causal convolution, the selective scan, and a gated norm. It takes the
// place of attention in a layer, or runs beside it. Its state is two slots.
#pragma once

#include <limits>

#include "cache/state_layout.h"
#include "models/blocks.h"

namespace millrace {

struct Mamba2Shape {
  SsmShape scan;
  int taps = 4;
  float least_step = 0, most_step = std::numeric_limits<float>::infinity();
  bool may_lack_norm = false;

  int64_t conv_cols() const { return scan.inner() + 2 * scan.group_cols(); }          // x, B, C
  int64_t projected_cols() const { return scan.inner() + conv_cols() + scan.heads; }  // z, x, B, C, dt
};

enum class MixerGate : uint8_t {
  BeforeNorm,  // norm(y silu(z))
  AfterNorm,   // norm(y) silu(z)
};

struct Mamba2Mixer {
  Mamba2Shape shape;
  const Linear* in = nullptr;                                   // [projected_cols, hidden]
  const Vector* taps = nullptr;                                 // [conv_cols][taps]
  const Vector* conv_bias = nullptr;                            // [conv_cols]; null: none
  const Vector *dt_bias = nullptr, *a = nullptr, *d = nullptr;  // [heads]
  const Vector* norm = nullptr;                                 // [inner], by groups; null: no norm
  const Linear* out = nullptr;                                  // [hidden, inner]
  float norm_epsilon = 1e-5f;
  MixerGate gate = MixerGate::BeforeNorm;
  float factors[5] = {1, 1, 1, 1, 1};  // of the columns z, x, B, C, dt of the projection
  int conv_state = 0, scan_state = 0;  // slots in the StateLayout
};

// Keys of a Hugging Face config; GGUF has one set of keys for all.
struct Mamba2Keys {
  std::string_view heads, head_dim, groups, state, taps;
  int64_t usual_heads = 128, usual_groups = 8, usual_state = 128;
};
// The keys of mixers beside attention (Granite 4, Falcon-H1).
inline constexpr Mamba2Keys kPrefixedMamba2Keys{.heads = "mamba_n_heads",
                                                .head_dim = "mamba_d_head",
                                                .groups = "mamba_n_groups",
                                                .state = "mamba_d_state",
                                                .taps = "mamba_d_conv",
                                                .usual_groups = 1,
                                                .usual_state = 256};
// `inner`: heads * head_dim of a Hugging Face config, which gives the head size where the config has "auto".
Mamba2Shape read_mamba2_shape(const WeightSource& source, const Mamba2Keys& keys, int64_t inner);
// Reads time_step_limit, a pair of numbers of which the second is often infinity.
void read_step_limit(const WeightSource& source, Mamba2Shape& shape);

// `hf`: the prefix of the mixer's tensors in a layer ("mixer."). Biases are optional.
Mamba2Mixer load_mamba2(Weights::Layer& at, const std::string& hf, const Mamba2Shape& shape, int64_t hidden,
                        float norm_epsilon, StateLayout& state);

// The mixer without its output matrix: [rows, inner].
Matrix mamba2_block(Pass& pass, const Mamba2Mixer& mixer, const Normed& x);

}  // namespace millrace
