// Mixtures of experts beyond the goldens: batch invariance, quantized experts, hostile files.
#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "engine/measure/inspection.h"
#include "engine/measure/tuning.h"
#include "models/edited_model.h"
#include "models/memory_source.h"
#include "models/mixture_files.h"

namespace millrace {
namespace {

using Tensors = std::vector<std::pair<std::string, std::vector<int64_t>>>;

constexpr const char* kConfig = R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
    "vocab_size": 60, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 128, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "norm_topk_prob": true, "tie_word_embeddings": true})";

Tensors qwen3_moe_tensors() {
  const std::string layer = "model.layers.0.";
  return {{"model.embed_tokens.weight", {60, 64}},       {"model.norm.weight", {64}},
          {layer + "input_layernorm.weight", {64}},      {layer + "post_attention_layernorm.weight", {64}},
          {layer + "self_attn.q_proj.weight", {64, 64}}, {layer + "self_attn.k_proj.weight", {32, 64}},
          {layer + "self_attn.v_proj.weight", {32, 64}}, {layer + "self_attn.o_proj.weight", {64, 64}},
          {layer + "self_attn.q_norm.weight", {16}},     {layer + "self_attn.k_norm.weight", {16}},
          {layer + "mlp.gate.weight", {4, 64}},          {layer + "mlp.experts.gate_up_proj", {4, 64, 64}},
          {layer + "mlp.experts.down_proj", {4, 64, 32}}};
}

Tensors with_shape(const std::string& name, std::vector<int64_t> shape) {
  Tensors tensors = qwen3_moe_tensors();
  for (auto& tensor : tensors) {
    if (tensor.first.ends_with(name)) tensor.second = shape;
  }
  return tensors;
}

template <class Open>
std::string message_of(Open open) {
  try {
    Runner runner(open(), {.threads = 1, .context = 64});
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::string message_of(const Tensors& tensors) {
  return message_of([&] { return std::make_shared<MemorySource>(kConfig, tensors); });
}

std::string message_with(const std::string& golden, const std::string& key, const nlohmann::json& value) {
  const EditedModel model([&](auto& c) { c[key] = value; }, golden);
  return message_of([&] { return open_weights(model.path()); });
}

TEST(Mixture, FastKernelsAgreeWithExactOnes) {
  const auto logits = [](bool exact) {
    auto runner = std::make_unique<Runner>(
        std::make_shared<MemorySource>(kConfig, qwen3_moe_tensors()),
        LoadOptions{.threads = 2, .exact = exact, .context = 64, .rows = 16, .logit_rows = 16});
    runner->load();
    return all_logits(*runner, {3, 14, 15, 9, 26, 5, 35, 8, 9}, 9);
  };
  const auto exact = logits(true), fast = logits(false);
  ASSERT_EQ(exact.size(), fast.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    for (size_t j = 0; j < exact[i].size(); ++j) EXPECT_NEAR(fast[i][j], exact[i][j], 2e-3) << i << " " << j;
  }
}

// A shared expert as wide as two others, with a gate: as further experts it gives what it gives as a feed-forward.
TEST(Mixture, JoinedSharedExpertsGiveTheSameLogits) {
  constexpr const char* kShared = R"({"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
    "vocab_size": 60, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 128, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "norm_topk_prob": true,
    "tie_word_embeddings": true})";
  const std::string layer = "model.layers.0.", shared = layer + "mlp.shared_expert.";
  Tensors tensors = qwen3_moe_tensors();
  std::erase_if(tensors, [](const auto& tensor) { return tensor.first.find("_norm.") != std::string::npos; });
  for (const char* of : {"q", "k", "v"})
    tensors.push_back({layer + "self_attn." + of + "_proj.bias", {of[0] == 'q' ? 64 : 32}});
  tensors.insert(tensors.end(), {{shared + "gate_proj.weight", {64, 64}},
                                 {shared + "up_proj.weight", {64, 64}},
                                 {shared + "down_proj.weight", {64, 64}},
                                 {layer + "mlp.shared_expert_gate.weight", {1, 64}}});
  const auto logits = [&](bool join) {
    auto runner = std::make_unique<Runner>(
        std::make_shared<MemorySource>(kShared, tensors),
        LoadOptions{
            .threads = 2, .exact = true, .context = 64, .rows = 16, .logit_rows = 16, .join_shared_experts = join});
    runner->load();
    EXPECT_EQ(runner->ops().groupeds().front()->weights.groups, join ? 6 : 4);
    return all_logits(*runner, {3, 14, 15, 9, 26, 5, 35, 8, 9}, 9);
  };
  const auto apart = logits(false), joined = logits(true);
  for (size_t i = 0; i < apart.size(); ++i) {
    for (size_t j = 0; j < apart[i].size(); ++j) EXPECT_NEAR(joined[i][j], apart[i][j], 1e-5) << i << " " << j;
  }
}

TEST(Mixture, InspectCountsActiveParameters) {
  const auto i = inspect(std::make_shared<MemorySource>(kConfig, qwen3_moe_tensors()), {.threads = 1, .context = 64});
  EXPECT_EQ(i.problem, "");
  EXPECT_EQ(i.parameters - i.active_parameters, 2 * (64 * 64 + 64 * 32));  // two of four experts
}

TEST(Mixture, TensorsOfTheWrongShapeAreNamed) {
  EXPECT_EQ(message_of(qwen3_moe_tensors()), "no error");
  EXPECT_THAT(message_of(with_shape("gate_up_proj", {4 * 64, 64})), testing::HasSubstr("mlp.experts.gate_up_proj"));
  EXPECT_THAT(message_of(with_shape("gate_up_proj", {3, 64, 64})), testing::HasSubstr("mlp.experts.gate_up_proj"));
  EXPECT_THAT(message_of(with_shape("experts.down_proj", {4, 32, 64})), testing::HasSubstr("mlp.experts.down_proj"));
  EXPECT_THAT(message_of(with_shape("mlp.gate.weight", {64})), testing::HasSubstr("mlp.gate.weight"));
  EXPECT_THAT(message_of(with_shape("mlp.gate.weight", {4, 4, 16})), testing::HasSubstr("mlp.gate.weight"));
}

TEST(Mixture, ImpossibleConfigsAreRefused) {
  EXPECT_THAT(message_with("mixtral", "num_local_experts", 0), testing::HasSubstr("'num_local_experts'"));
  EXPECT_THAT(message_with("mixtral", "num_local_experts", 9), testing::HasSubstr("gate.weight"));
  EXPECT_THAT(message_with("mixtral", "num_experts_per_tok", 6), testing::HasSubstr("'num_experts_per_tok'"));
  EXPECT_THAT(message_with("mixtral", "num_experts_per_tok", 0), testing::HasSubstr("'num_experts_per_tok'"));
  EXPECT_THAT(message_with("ernie4_5_moe", "moe_k", 7), testing::HasSubstr("'moe_k'"));
  EXPECT_THAT(message_with("glm4_moe", "n_group", 4), testing::HasSubstr("'n_group' must divide"));
  EXPECT_THAT(message_with("glm4_moe", "n_group", 6), testing::HasSubstr("'n_group'"));
  EXPECT_THAT(message_with("glm4_moe_groups", "num_experts_per_tok", 5), testing::HasSubstr("'topk_group'"));
  EXPECT_THAT(message_with("olmoe_clip", "clip_qkv", -1), testing::HasSubstr("'clip_qkv'"));
  EXPECT_THAT(message_with("phimoe", "num_experts_per_tok", 3), testing::HasSubstr("SparseMixer"));
}

TEST(Mixture, HostileCountsAreRefused) {
  for (const auto& [golden, experts, used] : {std::tuple("mixtral", "num_local_experts", "num_experts_per_tok"),
                                              std::tuple("qwen3_moe", "num_experts", "num_experts_per_tok"),
                                              std::tuple("ernie4_5_moe", "moe_num_experts", "moe_k"),
                                              std::tuple("gemma4_experts", "num_experts", "top_k_experts")}) {
    const std::string folder = std::string(goldens_folder() / golden / "config.json");
    std::ifstream in(folder);
    const auto config = nlohmann::json::parse(in);
    const std::string key = config.contains(experts) ? experts : "num_local_experts";  // transformers 5 renames it
    for (const nlohmann::json& count : {nlohmann::json(-1), nlohmann::json(0), nlohmann::json(int64_t{1} << 40),
                                        nlohmann::json(1e300), nlohmann::json("many"), nlohmann::json(2.5)}) {
      EXPECT_THAT(message_with(golden, key, count), testing::HasSubstr(key)) << golden << count;
      EXPECT_THAT(message_with(golden, used, count), testing::HasSubstr(used)) << golden << count;
    }
    // Plausible counts that the tensors do not have.
    EXPECT_THAT(message_with(golden, key, 60000), testing::HasSubstr("the file has [")) << golden;
  }
}

std::string message_of_gguf(const MixtureForm& form) {
  MixtureFiles files;
  const std::string path = files.write(form);
  return message_of([&] { return open_weights(path); });
}

TEST(Mixture, HostileGgufFilesAreRefused) {
  const auto with = [](const char* key, uint32_t value) {
    return message_of_gguf({.format = [](const std::string&) { return DType::F16; },
                            .change = [=](GgufMetadataBuilder& m) { m.add_u32(std::string("qwen3moe.") + key, value); },
                            .drop = std::string("qwen3moe.") + key});
  };
  EXPECT_THAT(with("expert_count", 0), testing::HasSubstr("qwen3moe.expert_count"));
  EXPECT_THAT(with("expert_count", 7), testing::HasSubstr("ffn_gate_inp.weight"));
  EXPECT_THAT(with("expert_count", 4'000'000'000), testing::HasSubstr("qwen3moe.expert_count"));
  EXPECT_THAT(with("expert_used_count", 0), testing::HasSubstr("qwen3moe.expert_used_count"));
  EXPECT_THAT(with("expert_used_count", 9), testing::HasSubstr("qwen3moe.expert_used_count"));
  EXPECT_THAT(with("expert_feed_forward_length", 0), testing::HasSubstr("qwen3moe.expert_feed_forward_length"));
  EXPECT_THAT(with("expert_feed_forward_length", 255), testing::HasSubstr("_exps.weight"));
  EXPECT_THAT(with("expert_used_count", 2), testing::HasSubstr("no error"));
}

TEST(Mixture, AMissingSharedExpertIsAnError) {
  EXPECT_THAT(message_with("granitemoe", "shared_intermediate_size", 12), testing::HasSubstr("is missing"));
}

}  // namespace
}  // namespace millrace
