// Equivalent spellings of a config give the same logits.
#include "formats/gguf_writer.h"
#include "models/edited_model.h"

namespace millrace {
namespace {

using Rows = std::vector<std::vector<float>>;

Rows logits_of(const std::string& model) {
  const std::vector<int32_t> tokens{5, 9, 14, 30, 7, 22, 5, 41, 3, 17, 28, 6};
  const auto length = static_cast<int32_t>(tokens.size());
  auto runner = load(model, {.threads = 1, .exact = true, .context = length, .rows = length, .logit_rows = length});
  return all_logits(*runner, tokens, length);
}

std::string golden(const std::string& name) { return (goldens_folder() / name).string(); }

TEST(Config, AWindowIsMistralsAndNotLlamas) {
  const EditedModel llama([](auto& c) { c["sliding_window"] = 3; }, "llama_gqa");
  EXPECT_EQ(logits_of(llama.path()), logits_of(golden("llama_gqa")));
  const EditedModel mistral([](auto& c) { c["sliding_window"] = 3; }, "mistral_sliding_window");
  EXPECT_NE(logits_of(mistral.path()), logits_of(golden("mistral_sliding_window")));
}

TEST(Config, YarnFindsItsFactorInTheLengths) {
  const auto with_factor = [](const nlohmann::json& factor) {
    const EditedModel model(
        [&](auto& c) {
          c["max_position_embeddings"] = 256;
          c["rope_parameters"]["original_max_position_embeddings"] = 64;
          c["rope_parameters"]["factor"] = factor;
        },
        "llama_rope_yarn");
    return logits_of(model.path());
  };
  EXPECT_EQ(with_factor(nullptr), with_factor(4.0));
  EXPECT_NE(with_factor(nullptr), with_factor(1.0));
}

// The golden's GGUF file with other keys for linear RoPE scaling.
std::string with_rope_keys(const std::string& path, std::string_view factor_key, bool with_type) {
  const auto source = open_weights(golden("llama_rope_linear/model.gguf"));
  GgufMetadataBuilder metadata;
  for (const auto& entry : source->gguf()->entries()) {
    if (entry.key == "llama.rope.scaling.factor" || entry.key == "llama.rope.scaling.type") continue;
    metadata.copy(entry);
  }
  metadata.add_f32(factor_key, static_cast<float>(*source->gguf()->number("llama.rope.scaling.factor")));
  if (with_type) metadata.add_string("llama.rope.scaling.type", "linear");
  std::vector<GgufTensor> tensors;
  for (const auto& tensor : source->tensors()) tensors.push_back({tensor.name, *tensor.dtype, tensor.shape});
  GgufWriter writer(path, metadata, tensors);
  for (const auto& tensor : source->tensors()) writer.write({tensor.data, tensor.bytes});
  writer.finish();
  return path;
}

TEST(Config, AGgufFactorWithoutATypeIsLinear) {
  const std::string path = testing::TempDir() + "millrace_rope_keys.gguf";
  const Rows linear = logits_of(golden("llama_rope_linear/model.gguf"));
  EXPECT_EQ(logits_of(with_rope_keys(path, "llama.rope.scaling.factor", false)), linear);
  EXPECT_EQ(logits_of(with_rope_keys(path, "llama.rope.scale_linear", false)), linear);
  EXPECT_EQ(logits_of(with_rope_keys(path, "llama.rope.scale_linear", true)), linear);
  EXPECT_NE(logits_of(with_rope_keys(path, "llama.unknown", false)), linear);
  std::filesystem::remove(path);
}

// EXAONE 4 has a window by default; null means that it has none, and then every layer has RoPE.
TEST(Config, ANullIsNotADefault) {
  const auto with_window = [](auto edit) { return logits_of(EditedModel(edit, "exaone4").path()); };
  const Rows usual = with_window([](auto& c) { c["sliding_window"] = 4096; });
  EXPECT_EQ(with_window([](auto& c) { c.erase("sliding_window"); }), usual);
  EXPECT_NE(with_window([](auto& c) { c["sliding_window"] = nullptr; }), usual);
}

TEST(Config, Ministral3HasYarnByDefault) {
  const auto with_rope = [](auto edit) { return logits_of(EditedModel(edit, "ministral3").path()); };
  const Rows absent = with_rope([](auto& c) { c.erase("rope_parameters"); });
  EXPECT_EQ(absent, with_rope([](auto& c) {
              c["rope_parameters"] = {
                  {"rope_type", "yarn"}, {"rope_theta", 1e6},           {"factor", 16},
                  {"mscale", 1},         {"mscale_all_dim", 1},         {"beta_fast", 32},
                  {"beta_slow", 1},      {"llama_4_scaling_beta", 0.1}, {"original_max_position_embeddings", 16384}};
            }));
  EXPECT_NE(absent, with_rope([](auto& c) { c["rope_parameters"] = {{"rope_theta", 1e6}}; }));
}

// Values that are not those of a model without the setting.
TEST(Config, GemmasHaveTheirDefaults) {
  const auto edited = [](const char* name, auto edit) { return logits_of(EditedModel(edit, name).path()); };
  EXPECT_EQ(edited("gemma2", [](auto& c) { c.erase("attn_logit_softcapping"), c.erase("query_pre_attn_scalar"); }),
            edited("gemma2", [](auto& c) { c["attn_logit_softcapping"] = 50, c["query_pre_attn_scalar"] = 256; }));
  EXPECT_NE(edited("gemma2", [](auto& c) { c["attn_logit_softcapping"] = nullptr; }),
            edited("gemma2", [](auto& c) { c.erase("attn_logit_softcapping"); }));
  EXPECT_EQ(edited("gemma3", [](auto& c) { c.erase("query_pre_attn_scalar"); }),
            edited("gemma3", [](auto& c) { c["query_pre_attn_scalar"] = 256; }));
}

TEST(Config, GemmasFirstConfigsMeanTanhByGelu) {
  const auto with_version = [](const char* version) {
    const auto edit = [&](auto& c) { c["hidden_act"] = "gelu", c["transformers_version"] = version; };
    return logits_of(EditedModel(edit, "gemma").path());
  };
  EXPECT_EQ(with_version("4.38.0.dev0"), logits_of(golden("gemma")));
  EXPECT_NE(with_version("4.57.6"), logits_of(golden("gemma")));
}

}  // namespace
}  // namespace millrace
