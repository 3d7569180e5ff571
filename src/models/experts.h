// A mixture of experts in the place of a feed-forward: a router, the experts' matrices, and optionally an expert that
// all tokens share.
#pragma once

#include "models/blocks.h"

namespace millrace {

struct Experts {
  const Linear* router = nullptr;  // [experts, hidden]
  const Vector* router_norm =
      nullptr;            // [hidden]: the router's own norm of the input; null: it reads the experts' input
  float logit_scale = 1;  // of the router's logits
  const Vector* choice_bias = nullptr;   // [experts]: added to the scores for the choice only; null: none
  const Vector* expert_scale = nullptr;  // [experts]: factors of the experts' weights; null: none
  RouterSettings settings;
  const Grouped* gate_up = nullptr;     // [experts][2 width, hidden]; without a gate [experts][width, hidden]
  const Grouped* down = nullptr;        // [experts][hidden, width]
  FeedForwardWeights shared;            // gate_up null: no shared expert
  const Linear* latent_in = nullptr;    // [latent, hidden]: the routed experts' input is narrower; null: it is not
  const Linear* latent_out = nullptr;   // [hidden, latent]
  const Linear* shared_gate = nullptr;  // [1, hidden]: the shared expert counts sigmoid of it; null: it counts once
  // A shared expert may also be settings.shared further groups of gate_up and down; its gate is then the router's last
  // row.
};

// Defaults of missing values, as in DecoderKeys; 0: the value is required. Without a default, an expert is as wide as
// the feed-forward.
struct MixtureDefaults {
  int64_t experts = 0, per_row = 0, width = 0;
};
// Reads the number of experts and their width into `config`, under the keys of all known exporters.
void read_mixture_config(const WeightSource& source, DecoderConfig& config, const MixtureDefaults& usual = {});
// Whether the router's weights are divided by their sum; `usual`: the architecture's default in this convention.
bool renormalizes(const WeightSource& source, bool usual);

// Experts are chosen from the best `kept` of `all` equal groups.
struct RouterGroups {
  int64_t all = 1, kept = 1;
};
// Reads and checks the groups. `usual`: defaults of a Hugging Face config; `by_two`: a group counts as its two best.
RouterGroups read_router_groups(const WeightSource& source, const DecoderConfig& config, RouterGroups usual = {},
                                bool by_two = false);
// DeepSeek-V3's router: groups by the sum of their two best experts, sigmoid scores.
RouterSettings read_sigmoid_router(const WeightSource& source, const DecoderConfig& config, RouterGroups usual = {},
                                   double usual_scale = 1);

bool has_experts(const Weights::Layer& at);  // the file has a router for this layer

// Router, choice bias (if the file has one) and experts under the names of all known exporters. `settings` has all but
// the number of experts per row.
Experts load_experts(Weights::Layer& at, const DecoderConfig& config, RouterSettings settings, Activation activation,
                     SwigluClamp clamp = {});
// The same for experts down(act(up(x))) without a gate, and a shared expert of the width `shared` (0: none) in the same
// form. `latent`: the width of the routed experts' inputs and outputs; 0: that of the model.
Experts load_ungated_experts(Weights::Layer& at, const DecoderConfig& config, RouterSettings settings, int64_t shared,
                             int64_t latent);
// The experts' matrices alone, with biases if the file has them.
void load_expert_matrices(Weights::Layer& at, const DecoderConfig& config, Activation activation, Experts& experts,
                          SwigluClamp clamp = {});
// The shared expert, its gate too, if the file has them. A missing shared expert is an error if it is required.
void load_shared_expert(Weights::Layer& at, const DecoderConfig& config, Activation activation, bool required,
                        Experts& experts);

// Throw if the file lacks the gate of the shared expert, or a folder lacks the bias of the choice, whose name is `hf`.
void require_shared_gate(const Weights::Layer& at);
void require_choice_bias(const Weights::Layer& at, const Experts& experts, const std::string& hf);

// hidden += experts(x), shared expert included.
void add_experts(Pass& pass, const Experts& experts, const Normed& x, Activation activation, Matrix hidden);

}  // namespace millrace
