#include "formats/hf_defaults.h"

#include <string_view>

namespace millrace {
namespace {

struct Defaults {
  std::string_view model_type;
  const char* values;
};

// Only keys that configs in use leave out or whose null differs from absence.
constexpr Defaults kDefaults[] = {
    {"mistral", R"({"num_key_value_heads": 8, "sliding_window": 4096})"},
    {"ministral3", R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5})"},
    {"smollm3", R"({"num_key_value_heads": 4, "rope_theta": 2e6})"},
    {"olmo2", R"({"rms_norm_eps": 1e-5})"},
    {"olmo3", R"({"rms_norm_eps": 1e-5, "sliding_window": 4096, "rope_theta": 5e5})"},
    {"seed_oss", R"({"num_key_value_heads": 8, "head_dim": 128})"},
    {"hunyuan_v1_dense", R"({"rms_norm_eps": 1e-5})"},
    {"ernie4_5", R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 5e5})"},
    {"exaone4", R"({"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096})"},
    {"gemma2", R"({"num_key_value_heads": 4, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096,
                   "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})"},
    {"gemma3_text", R"({"query_pre_attn_scalar": 256, "sliding_window": 4096})"},
    {"gemma4_text", R"({"sliding_window": 512, "hidden_size_per_layer_input": 256})"},
    {"gemma", R"({"num_key_value_heads": 16, "head_dim": 256})"},
    {"phi3", R"({"rms_norm_eps": 1e-5})"},
    {"falcon_h1", R"({"num_key_value_heads": 8, "mamba_d_ssm": 1024})"},
    {"gpt_oss", R"({"num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-5, "sliding_window": 128,
                    "rope_theta": 1.5e5})"},
};

// The rope of Ministral 3 if its config has none.
constexpr const char* kMinistral3Rope =
    R"({"rope_type": "yarn", "rope_theta": 1e6, "factor": 16, "original_max_position_embeddings": 16384,
        "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1, "llama_4_scaling_beta": 0.1})";
// The RoPE of gpt-oss, also where the config has a null.
constexpr const char* kGptOssRope =
    R"({"rope_type": "yarn", "factor": 32, "original_max_position_embeddings": 4096, "truncate": false})";

bool has_value(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && !found->is_null();
}

}  // namespace

void add_hf_defaults(nlohmann::json& config) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return;
  for (const Defaults& defaults : kDefaults) {
    if (*type != defaults.model_type) continue;
    const nlohmann::json values = nlohmann::json::parse(defaults.values);
    for (const auto& item : values.items()) {
      if (!config.contains(item.key())) config[item.key()] = item.value();
    }
  }
  if (*type == "ministral3" && !config.contains("rope_parameters") && !config.contains("rope_scaling"))
    config["rope_parameters"] = nlohmann::json::parse(kMinistral3Rope);
  if (*type == "gpt_oss" && !has_value(config, "rope_parameters") && !has_value(config, "rope_scaling"))
    config["rope_parameters"] = nlohmann::json::parse(kGptOssRope);
}

}  // namespace millrace
