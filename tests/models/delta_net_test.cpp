// Gated delta nets beyond the goldens: tensors of further models in a file, configs that are
// refused.
#include <gmock/gmock.h>

#include "base/error.h"
#include "models/edited_model.h"
#include "models/memory_source.h"

namespace millrace {
namespace {

using testing::HasSubstr;

constexpr const char* kDeltaConfig = R"({"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
    "text_config": {"model_type": "qwen3_5_text", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 32,
    "max_position_embeddings": 128, "linear_num_key_heads": 1, "linear_num_value_heads": 2,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "tie_word_embeddings": true}})";

using DeltaTensors = std::vector<std::pair<std::string, std::vector<int64_t>>>;

DeltaTensors qwen3_5_tensors() {
  const std::string text = "model.language_model.", layer = text + "layers.0.", net = layer + "linear_attn.";
  return {{text + "embed_tokens.weight", {60, 32}},
          {text + "norm.weight", {32}},
          {layer + "input_layernorm.weight", {32}},
          {layer + "post_attention_layernorm.weight", {32}},
          {net + "in_proj_qkv.weight", {32, 32}},
          {net + "in_proj_z.weight", {16, 32}},
          {net + "in_proj_a.weight", {2, 32}},
          {net + "in_proj_b.weight", {2, 32}},
          {net + "conv1d.weight", {32, 1, 4}},
          {net + "A_log", {2}},
          {net + "dt_bias", {2}},
          {net + "norm.weight", {8}},
          {net + "out_proj.weight", {32, 16}},
          {layer + "mlp.gate_proj.weight", {32, 32}},
          {layer + "mlp.up_proj.weight", {32, 32}},
          {layer + "mlp.down_proj.weight", {32, 32}}};
}

std::string refusal_of(std::shared_ptr<const WeightSource> source) {
  try {
    Runner runner(std::move(source), {.threads = 1, .context = 64});
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// The vision model and the layers that predict further tokens do not belong to the text model. Without a list, the
// first three layers have delta nets.
TEST(DeltaNet, SkipsTensorsOfOtherModels) {
  DeltaTensors tensors = qwen3_5_tensors();
  tensors.push_back({"mtp.layers.0.self_attn.q_proj.weight", {32, 32}});
  tensors.push_back({"mtp.norm.weight", {32}});
  tensors.push_back({"model.visual.blocks.0.attn.qkv.weight", {48, 16}});
  EXPECT_EQ(refusal_of(std::make_shared<MemorySource>(kDeltaConfig, tensors)), "no error");
  tensors.push_back({"model.language_model.layers.0.linear_attn.extra.weight", {32, 32}});
  EXPECT_THAT(refusal_of(std::make_shared<MemorySource>(kDeltaConfig, tensors)), HasSubstr("extra.weight"));
}

TEST(DeltaNet, RefusesTensorsOfOtherShapes) {
  for (const char* name : {"conv1d.weight", "A_log", "dt_bias", "in_proj_qkv.weight", "linear_attn.norm.weight"}) {
    DeltaTensors tensors = qwen3_5_tensors();
    for (auto& tensor : tensors) {
      if (tensor.first.ends_with(name)) ++tensor.second[0];
    }
    EXPECT_THAT(refusal_of(std::make_shared<MemorySource>(kDeltaConfig, tensors)), HasSubstr(name));
  }
}

TEST(DeltaNet, RefusesConfigsItCannotRun) {
  const auto message_with = [](const std::string& key, const nlohmann::json& value) {
    const EditedModel model([&](auto& c) { c[key] = value; }, "qwen3_next");
    return refusal_of(open_weights(model.path()));
  };
  EXPECT_THAT(message_with("linear_num_value_heads", 3), HasSubstr("linear_num_value_heads"));
  EXPECT_THAT(message_with("linear_num_key_heads", 0), HasSubstr("linear_num_key_heads"));
  EXPECT_THAT(message_with("linear_conv_kernel_dim", 1), HasSubstr("linear_conv_kernel_dim"));
  EXPECT_THAT(message_with("linear_key_head_dim", 1 << 20), HasSubstr("linear_key_head_dim"));
  EXPECT_THAT(message_with("hidden_act", "gelu"), HasSubstr("SiLU"));
  EXPECT_THAT(message_with("layer_types", {"linear_attention"}), HasSubstr("layer_types"));
  EXPECT_THAT(message_with("layer_types", {"linear_attention", "linear_attention", "linear_attention", "mamba"}),
              HasSubstr("mamba"));
}

}  // namespace
}  // namespace millrace
