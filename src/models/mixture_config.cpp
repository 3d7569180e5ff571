// The settings of mixtures and their routers, under the keys of all known exporters.
#include "models/experts.h"

namespace millrace {

void read_mixture_config(const WeightSource& source, DecoderConfig& c, const MixtureDefaults& usual) {
  constexpr int64_t kMostExperts = 1 << 16;
  const Config& config = source.config();
  const auto count = [&](std::string_view gguf, std::initializer_list<std::string_view> hf, int64_t otherwise) {
    ConfigKey key{*hf.begin(), gguf};
    for (const std::string_view name : hf) {
      if (config.has({.hf = name})) key.hf = name;
    }
    if (otherwise > 0 && !is_gguf(source)) return config.optional_integer(key, {1, kMostExperts}).value_or(otherwise);
    return config.integer(key, {1, kMostExperts});
  };
  c.experts =
      count("expert_count", {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}, usual.experts);
  c.experts_per_row = count("expert_used_count", {"num_experts_per_tok", "moe_k", "top_k_experts"}, usual.per_row);
  if (c.experts_per_row > c.experts) {
    std::string_view key = "num_experts_per_tok";
    for (const char* other : {"moe_k", "top_k_experts"}) {
      if (config.has({.hf = other})) key = other;
    }
    config.fail_key({key, "expert_used_count"}, "must not exceed the number of experts");
  }
  c.expert_width = config.optional_integer({"moe_intermediate_size", "expert_feed_forward_length"}, {1, 1 << 22})
                       .value_or(usual.width > 0 && !is_gguf(source) ? usual.width : c.feed_forward);
}

bool renormalizes(const WeightSource& source, bool usual) {
  return source.config().optional_boolean({"norm_topk_prob", "expert_weights_norm"}).value_or(usual);
}

RouterGroups read_router_groups(const WeightSource& source, const DecoderConfig& c, RouterGroups usual, bool by_two) {
  const Config& keys = source.config();
  if (is_gguf(source)) usual = {};
  const ConfigKey all{"n_group", "expert_group_count"}, kept{"topk_group", "expert_group_used_count"};
  RouterGroups groups;
  groups.all = keys.optional_integer(all, {1, c.experts}).value_or(usual.all);
  groups.kept = keys.optional_integer(kept, {1, groups.all}).value_or(std::min(usual.kept, groups.all));
  if (c.experts % groups.all != 0) keys.fail_key(all, "must divide the number of experts");
  if (by_two && groups.all > 1 && c.experts / groups.all < 2)
    keys.fail_key(all, "must leave two experts or more in a group");
  if (c.experts / groups.all * groups.kept < c.experts_per_row)
    keys.fail_key(kept, "must leave enough experts to choose from");
  return groups;
}

RouterSettings read_sigmoid_router(const WeightSource& source, const DecoderConfig& c, RouterGroups usual,
                                   double usual_scale) {
  const Config& keys = source.config();
  const RouterGroups groups = read_router_groups(source, c, usual, /*by_two=*/true);
  const auto scale = keys.optional_number({"routed_scaling_factor", "expert_weights_scale"});
  return {.scoring = Scoring::Sigmoid,
          .expert_groups = static_cast<int>(groups.all),
          .kept_groups = static_cast<int>(groups.kept),
          .groups_by_two_best = true,
          .renormalize = renormalizes(source, true),
          .sum_epsilon = 1e-20f,
          .scale = static_cast<float>(scale.value_or(is_gguf(source) ? 1 : usual_scale))};
}

}  // namespace millrace
