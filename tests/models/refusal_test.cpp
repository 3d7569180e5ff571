// Models that cannot run are refused with a clear message, before any large allocation.
#include <gmock/gmock.h>

#include "base/error.h"
#include "models/edited_model.h"

namespace millrace {
namespace {

std::string message_of(const EditedModel& model) {
  try {
    Runner runner(open_weights(model.path()), {.threads = 1, .context = 64});
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Refusal, UnknownArchitectureIsNamed) {
  const EditedModel model([](auto& c) { c["architectures"] = {"RwkvForCausalLM"}; });
  EXPECT_THAT(message_of(model), testing::AllOf(testing::HasSubstr("RwkvForCausalLM"), testing::HasSubstr("llama")));
}

TEST(Refusal, UnknownRopeScalingIsNamed) {
  const EditedModel model([](auto& c) { c["rope_parameters"] = {{"rope_type", "spiral"}, {"rope_theta", 10000.0}}; });
  EXPECT_THAT(message_of(model), testing::HasSubstr("'spiral'"));
}

TEST(Refusal, RopeScalingWithoutItsNumbersIsNamed) {
  for (const auto& [golden, key] : std::vector<std::pair<std::string, std::string>>{
           {"llama_rope_linear", "factor"},
           {"llama_rope_llama3", "factor"},
           {"llama_rope_llama3", "low_freq_factor"},
           {"llama_rope_llama3", "high_freq_factor"},
       }) {
    const EditedModel model([&, &key = key](auto& c) { EXPECT_EQ(c["rope_parameters"].erase(key), 1); }, golden);
    EXPECT_THAT(message_of(model), testing::HasSubstr("rope_parameters." + key + "' is missing"));
  }
}

TEST(Refusal, ShapeThatDoesNotMatchTheConfigNamesTheTensor) {
  const EditedModel model([](auto& c) { c["intermediate_size"] = c["intermediate_size"].template get<int>() + 8; });
  EXPECT_THAT(message_of(model), testing::HasSubstr("mlp.gate_proj.weight"));
}

TEST(Refusal, GptOssNeedsSinksExpertsAndSensibleLimits) {
  const EditedModel limit([](auto& c) { c["swiglu_limit"] = 0; }, "gpt_oss");
  EXPECT_THAT(message_of(limit), testing::HasSubstr("swiglu_limit"));
  const EditedModel heads(
      [](auto& c) { c["num_attention_heads"] = 4, c["num_key_value_heads"] = 2, c["head_dim"] = 8; }, "gpt_oss");
  EXPECT_THAT(message_of(heads), testing::HasSubstr("sinks"));
  const EditedModel experts([](auto& c) { c["num_local_experts"] = 5; }, "gpt_oss");
  EXPECT_THAT(message_of(experts), testing::HasSubstr("mlp.router.weight"));
  const EditedModel greedy([](auto& c) { c["num_experts_per_tok"] = 5; }, "gpt_oss");
  EXPECT_THAT(message_of(greedy), testing::HasSubstr("must not exceed the number of experts"));
}

TEST(Refusal, LatentAttentionChecksItsSizesAndRouter) {
  const EditedModel method([](auto& c) { c["topk_method"] = "noaux_tc"; }, "deepseek_v2");
  EXPECT_THAT(message_of(method), testing::HasSubstr("'noaux_tc'"));
  const EditedModel latent([](auto& c) { c["kv_lora_rank"] = 17; }, "deepseek_v2");
  EXPECT_THAT(message_of(latent), testing::HasSubstr("kv_a_proj_with_mqa"));
  const EditedModel value([](auto& c) { c["v_head_dim"] = 0; }, "deepseek_v3");
  EXPECT_THAT(message_of(value), testing::HasSubstr("v_head_dim"));
  const EditedModel groups([](auto& c) { c["n_group"] = 3; }, "deepseek_v3");
  EXPECT_THAT(message_of(groups), testing::HasSubstr("n_group"));
  const EditedModel odd([](auto& c) { c["qk_rope_head_dim"] = 15, c["qk_nope_head_dim"] = 9; }, "glm4_moe_lite");
  EXPECT_THAT(message_of(odd), testing::HasSubstr("odd size"));
  const EditedModel depth([](auto& c) { c["scale_depth"] = -1; }, "minicpm3");
  EXPECT_THAT(message_of(depth), testing::HasSubstr("scale_depth"));
}

// The layer behind the last one predicts a further token.
TEST(Refusal, LayersThatPredictFurtherTokensAreSkipped) {
  const EditedModel skipped([](auto& c) { c["num_hidden_layers"] = 1; }, "deepseek_v3");
  EXPECT_EQ(message_of(skipped), "no error");
  const EditedModel none(
      [](auto& c) { c["num_hidden_layers"] = 1, c["num_nextn_predict_layers"] = 0, c.erase("num_mtp_layers"); },
      "deepseek_v3");
  EXPECT_THAT(message_of(none), testing::HasSubstr("model.layers.1"));
}

TEST(Refusal, MixersNeedSensibleShapesAndSteps) {
  const EditedModel heads([](auto& c) { c["num_heads"] = 5; }, "mamba2");
  EXPECT_THAT(message_of(heads), testing::HasSubstr("'num_heads' must divide"));
  const EditedModel groups([](auto& c) { c["n_groups"] = 4; }, "mamba2");
  EXPECT_THAT(message_of(groups), testing::HasSubstr("'n_groups' must divide"));
  const EditedModel size([](auto& c) { c["head_dim"] = 16; }, "mamba2");
  EXPECT_THAT(message_of(size), testing::HasSubstr("'head_dim'"));
  const EditedModel step([](auto& c) { c["time_step_limit"] = {0.5, 0.1}; }, "mamba2");
  EXPECT_THAT(message_of(step), testing::HasSubstr("'time_step_limit'"));
  const EditedModel activation([](auto& c) { c["hidden_act"] = "gelu"; }, "mamba2");
  EXPECT_THAT(message_of(activation), testing::HasSubstr("silu"));
  const EditedModel kind([](auto& c) { c["layer_types"][0] = "spiral"; }, "lfm2");
  EXPECT_THAT(message_of(kind), testing::HasSubstr("'spiral'"));
}

TEST(Refusal, TensorsNobodyAskedForAreNotLeftOutSilently) {
  const EditedModel model([](auto& c) { c["num_hidden_layers"] = 1; });
  EXPECT_THAT(message_of(model), testing::HasSubstr("model.layers.1"));
}

TEST(Refusal, AnOutputMatrixOfItsOwnIsMissed) {
  for (const char* golden : {"llama_mqa_tied", "opt"}) {
    const EditedModel model([](auto& c) { c["tie_word_embeddings"] = false; }, golden);
    EXPECT_THAT(message_of(model), testing::HasSubstr("'lm_head.weight' is missing")) << golden;
  }
}

// Without it a layer would be computed as one of a model that has no such tensor.
TEST(Refusal, ATensorThatOnlySomeModelsHaveIsMissed) {
  const auto unchanged = [](auto&) {};
  for (const auto& [golden, tensor] : std::vector<std::pair<std::string, std::string>>{
           {"llama_bias", "model.layers.0.self_attn.o_proj.bias"},
           {"nemotron_bias", "model.norm.bias"},
           {"granite_hybrid", "model.layers.0.mamba.norm.weight"},
           {"lfm2_bias", "model.layers.0.conv.conv.bias"},
           {"qwen2_moe", "model.layers.0.mlp.shared_expert_gate.weight"},
           {"qwen3_next_variants", "model.layers.0.self_attn.k_proj.bias"},
           {"deepseek_v3", "model.layers.1.mlp.gate.e_score_correction_bias"},
           {"minimax_m2", "model.layers.0.block_sparse_moe.e_score_correction_bias"},
           {"lfm2_moe", "model.layers.1.feed_forward.expert_bias"},
           {"phi", "lm_head.bias"},
           {"phimoe_longrope", "lm_head.bias"},
       }) {
    EditedModel model(unchanged, golden);
    model.edit_tensors([&, &tensor = tensor](auto& table) { EXPECT_EQ(table.erase(tensor), 1) << tensor; });
    EXPECT_THAT(message_of(model), testing::HasSubstr("'" + tensor + "' is missing"));
  }
}

TEST(Refusal, TensorsOfTheWrongRankAreNamed) {
  for (const char* tensor : {"model.norm.weight", "model.layers.0.mlp.up_proj.weight", "model.embed_tokens.weight"}) {
    EditedModel model([](auto&) {});
    model.edit_tensors([&](auto& table) { table[tensor]["shape"].insert(table[tensor]["shape"].begin(), 1); });
    EXPECT_THAT(message_of(model), testing::HasSubstr(tensor));
    model.edit_tensors([&](auto& table) { table[tensor]["shape"] = {table[tensor]["data_offsets"][1]}; });
    EXPECT_THAT(message_of(model), testing::HasSubstr(tensor));
  }
}

TEST(Refusal, TensorsOfAnExpertHaveTwoDimensions) {
  const std::string tensor = "model.layers.0.mlp.experts.0.up_proj.weight";
  EditedModel model([](auto&) {}, "qwen3_moe");
  model.edit_tensors([&](auto& table) { table[tensor]["shape"].insert(table[tensor]["shape"].begin(), 1); });
  EXPECT_THAT(message_of(model), testing::HasSubstr(tensor));
}

TEST(Refusal, WhatAModelWouldNotHonourIsNamed) {
  const EditedModel glm([](auto& c) { c["hidden_act"] = "mish"; }, "glm");
  EXPECT_THAT(message_of(glm), testing::HasSubstr("'mish'"));
}

TEST(Refusal, QuantizationMethodsAreNamed) {
  const EditedModel model([](auto& c) { c["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}}; });
  EXPECT_THAT(message_of(model), testing::HasSubstr("quantization method 'awq'"));
}

// A setting of a golden that must be refused with a message that contains `named`.
struct RefusedSetting {
  std::string golden, key;
  nlohmann::json value;
  std::string named;
};

TEST(Refusal, SettingsOfDenseCousinsAreNamed) {
  for (const auto& [golden, key, value, named] : std::vector<RefusedSetting>{
           {"hunyuan", "use_cla", true, "use_cla"},
           {"gemma", "use_bidirectional_attention", true, "both directions"},
           {"granite", "residual_multiplier", 0, "residual_multiplier"},
           {"granite", "logits_scaling", -1, "logits_scaling"},
           {"smollm3", "no_rope_layers", nlohmann::json::array({1, 0}), "no_rope_layers"},
           {"smollm3", "no_rope_layer_interval", 0, "no_rope_layer"},
           {"olmo3", "layer_types", nlohmann::json::array({"full_attention"}), "layer_types"},
           {"exaone4", "hidden_act", "mish", "'mish'"},
           {"mistral3_mistral", "text_config", {{"model_type", "mistral4"}}, "mistral4"},
           {"gemma4", "enable_moe_block", true, "num_experts"},
           {"gemma4_experts", "enable_moe_block", false, "layers.0.experts.down_proj"},
           {"gemma4_experts", "num_experts", 0, "num_experts"},
           {"gemma4_experts", "num_experts", 6, "router.proj.weight"},
           {"gemma4_experts", "top_k_experts", 6, "top_k_experts"},
           {"gemma4_experts", "moe_intermediate_size", 13, "experts.gate_up_proj"},
           {"gemma4", "use_bidirectional_attention", "all", "both directions"},
           {"gemma4", "num_kv_shared_layers", 6, "num_kv_shared_layers"},
           {"gemma4", "vocab_size_per_layer_input", 5, "vocab_size_per_layer_input"},
       }) {
    const EditedModel model(
        [&, &key = key, &value = value](auto& c) {
          if (value.is_object()) {
            c[key].update(value);
          } else {
            c[key] = value;
            if (key == "no_rope_layer_interval") c.erase("no_rope_layers");
          }
        },
        golden);
    EXPECT_THAT(message_of(model), testing::HasSubstr(named)) << golden;
  }
}

TEST(Refusal, TheSwitchesOfLayerNormModels) {
  const auto refusal = [](const std::string& golden, const std::string& key, const nlohmann::json& value) {
    return message_of(EditedModel([&](auto& c) { c[key] = value; }, golden));
  };
  EXPECT_THAT(refusal("gpt2", "add_cross_attention", true), testing::HasSubstr("cross-attention"));
  EXPECT_THAT(refusal("gpt2", "n_inner", 95), testing::HasSubstr("h.0.mlp.c_fc.weight"));
  EXPECT_THAT(refusal("gpt2", "n_head", 0), testing::HasSubstr("'n_head'"));
  EXPECT_THAT(refusal("gpt2", "n_embd", 25), testing::HasSubstr("'n_head'"));  // does not divide
  EXPECT_THAT(refusal("starcoder2", "hidden_act", "quick_gelu"), testing::HasSubstr("'quick_gelu'"));
  EXPECT_THAT(refusal("cohere", "use_qk_norm", true), testing::HasSubstr("'model.layers.0.self_attn.q_norm.weight'"));
  EXPECT_THAT(refusal("cohere_qk_norm", "use_qk_norm", false), testing::HasSubstr("self_attn.k_norm.weight"));
  EXPECT_THAT(refusal("cohere", "logit_scale", "large"), testing::HasSubstr("'logit_scale'"));
  EXPECT_THAT(refusal("cohere2", "layer_types", {"full_attention"}), testing::HasSubstr("'layer_types'"));
  EXPECT_THAT(refusal("cohere2", "sliding_window", 0), testing::HasSubstr("'sliding_window'"));
  EXPECT_THAT(refusal("stablelm_12b", "qk_layernorm", false), testing::HasSubstr("k_layernorm.norms.0.weight"));
  EXPECT_THAT(refusal("stablelm", "use_parallel_residual", true), testing::HasSubstr("post_attention_layernorm"));
  EXPECT_THAT(refusal("phi", "rope_parameters", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.2}}),
              testing::HasSubstr("odd"));
}

TEST(Refusal, ARopeThatRotatesNothingIsNamed) {
  for (const char* golden : {"qwen3_5", "phi", "glm4_moe"}) {
    const auto rotate_nothing = [](auto& c) {
      c["rope_parameters"] = {{"rope_theta", 1e4}, {"partial_rotary_factor", 1e-320}};
    };
    EXPECT_THAT(message_of(EditedModel(rotate_nothing, golden)), testing::HasSubstr("partial_rotary_factor")) << golden;
  }
}

TEST(Refusal, AbsurdConfigValuesAreErrors) {
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, nlohmann::json>>{{"num_attention_heads", 0},
                                                           {"num_attention_heads", -4},
                                                           {"num_key_value_heads", 3},
                                                           {"hidden_size", 1e300},
                                                           {"num_hidden_layers", "many"},
                                                           {"max_position_embeddings", nullptr},
                                                           {"rms_norm_eps", "small"}}) {
    const EditedModel model([key = key, value = value](auto& c) { c[key] = value; });
    EXPECT_THAT(message_of(model), testing::HasSubstr(key)) << value;
  }
}

TEST(Refusal, ModelThatDoesNotFitIsRefusedWithThePlan) {
  MemoryPlan plan;
  plan.available = 1000;
  plan.add("weights", 900);
  plan.check("m");
  plan.add("KV cache", 200);
  try {
    plan.check("m");
    FAIL() << "1100 bytes fitted into 1000";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::OutOfMemory);
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("KV cache 200 B"), testing::HasSubstr("1.1 kB"),
                                         testing::HasSubstr("--ctx")));
  }
}

TEST(Refusal, ASmallerContextIsNoAdviceIfTheWeightsAloneDoNotFit) {
  MemoryPlan plan;
  plan.available = 1000;
  plan.add("packed weights", 800);
  plan.add("weights read in place", 300);
  plan.add("KV cache", 200);
  try {
    plan.check("m");
    FAIL() << "1300 bytes fitted into 1000";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                testing::AllOf(testing::Not(testing::HasSubstr("--ctx")), testing::HasSubstr("quantization")));
  }
}

}  // namespace
}  // namespace millrace
