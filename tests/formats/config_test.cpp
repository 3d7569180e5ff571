#include "formats/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf_reader.h"
#include "formats/gguf_writer.h"
#include "scratch.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Config hf(std::string_view json) { return Config::from_hf(json, "config.json"); }
std::string error_of(std::string_view json, ConfigKey key) {
  return message_of([&] { hf(json).integer(key); });
}

constexpr ConfigKey kLayers{.hf = "num_hidden_layers", .gguf = "block_count"};
constexpr ConfigKey kTheta{.hf = "rope_parameters.rope_theta", .gguf = "rope.freq_base"};
constexpr ConfigKey kRopeType{.hf = "rope_parameters.rope_type"};

TEST(Config, HuggingFaceValuesOfEveryKind) {
  const Config config = hf(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 16,
      "eps": 1e-5, "whole": 4096.0, "flag": true, "text": "silu", "none": null, "ids": [1, 2], "mixed": [1, "a"],
      "a": {"b": {"c": 7}}})");
  EXPECT_EQ(config.architecture(), "LlamaForCausalLM");
  EXPECT_EQ(config.integer(kLayers), 16);
  EXPECT_EQ(config.number({.hf = "eps"}), 1e-5);
  EXPECT_EQ(config.number({.hf = "num_hidden_layers"}), 16);
  EXPECT_EQ(config.integer({.hf = "whole"}), 4096);
  EXPECT_TRUE(config.boolean({.hf = "flag"}));
  EXPECT_EQ(config.string({.hf = "text"}), "silu");
  EXPECT_EQ(config.integer({.hf = "a.b.c"}), 7);
  EXPECT_FALSE(config.has({.hf = "none"}));
  EXPECT_EQ(config.optional_integer({.hf = "none"}), std::nullopt);
  EXPECT_EQ(config.optional_integer({.hf = "a.b.d"}), std::nullopt);
  EXPECT_EQ(config.optional_integer({.gguf = "only_gguf"}), std::nullopt);
  EXPECT_THAT(config.array<int64_t>({.hf = "ids"}), ElementsAre(1, 2));
  EXPECT_THAT(message_of([&] { config.array<int64_t>({.hf = "mixed"}); }), HasSubstr("should hold a whole number"));
  EXPECT_THAT(message_of([&] { config.array<int64_t>({.hf = "text"}); }), HasSubstr("should be a list"));
}

TEST(Config, MissingWrongAndAbsurdValuesNameFileAndKey) {
  EXPECT_EQ(error_of("{}", kLayers), "config.json: 'num_hidden_layers' is missing");
  EXPECT_THAT(error_of(R"({"num_hidden_layers": "16"})", kLayers),
              HasSubstr("should be a whole number, the file has \"16\""));
  EXPECT_THAT(error_of(R"({"num_hidden_layers": true})", kLayers),
              HasSubstr("should be a whole number, the file has true"));
  EXPECT_THAT(error_of(R"({"num_hidden_layers": 1.5})", kLayers), HasSubstr("the file has 1.5"));
  EXPECT_THAT(error_of(R"({"num_hidden_layers": -1})", kLayers), HasSubstr("is -1, not between 0 and"));
  EXPECT_THAT(error_of(R"({"num_hidden_layers": 3000000000})", kLayers), HasSubstr("is 3000000000"));
  EXPECT_THAT(error_of(R"({"num_hidden_layers": 18446744073709551615})", kLayers), HasSubstr("whole number"));
  EXPECT_THAT(error_of(R"({"num_hidden_layers": {}})", kLayers), HasSubstr("an object"));
  EXPECT_THAT(error_of("{}", {.gguf = "only_gguf"}), HasSubstr("only_gguf"));
  EXPECT_THAT(message_of([] { hf(R"({"x": 1e400})"); }), HasSubstr("config.json"));
}

TEST(Config, TextsThatAreNotAConfigAreRefused) {
  EXPECT_THAT(message_of([] { hf(""); }), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of([] { hf("[1]"); }), HasSubstr("not a JSON object"));
  EXPECT_THAT(message_of([] { hf("{\"a\":" + std::string(1'000'000, '[')); }), HasSubstr("nested deeper"));
}

TEST(Config, RopeIsTheSameInTheSpellingsOfVersion4And5) {
  for (const char* json :
       {R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}})",
        R"({"rope_theta": 500000.0, "rope_scaling": {"type": "llama3", "factor": 8.0}})",
        R"({"rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0}})",
        R"({"text_config": {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0}}})"}) {
    const Config config = hf(json);
    EXPECT_EQ(config.number(kTheta), 500000.0) << json;
    EXPECT_EQ(config.string(kRopeType), "llama3") << json;
    EXPECT_EQ(config.number({.hf = "rope_parameters.factor"}), 8.0) << json;
  }
  EXPECT_EQ(hf(R"({"rope_theta": 10000, "rope_scaling": null})").string(kRopeType), "default");
  EXPECT_EQ(hf("{}").string(kRopeType), "default");
  const Config scaled = hf(R"({"model_type": "gpt_oss", "rope_scaling": null, "rope_theta": 5000})");
  EXPECT_EQ(scaled.string(kRopeType), "yarn");
  EXPECT_EQ(scaled.number({.hf = "rope_parameters.factor"}), 32);
  EXPECT_EQ(scaled.number(kTheta), 5000);
  EXPECT_FALSE(scaled.boolean({.hf = "rope_parameters.truncate"}));
  EXPECT_EQ(hf(R"({"model_type": "gpt_oss", "rope_parameters": {"rope_type": "default"}})").string(kRopeType),
            "default");
  EXPECT_EQ(hf(R"({"partial_rotary_factor": 0.5})").number({.hf = "rope_parameters.partial_rotary_factor"}), 0.5);
}

TEST(Config, PhiKeepsTheTrainedLengthOutsideTheScaling) {
  const Config config = hf(R"({"original_max_position_embeddings": 4096,
      "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}})");
  EXPECT_EQ(config.integer({.hf = "rope_parameters.original_max_position_embeddings"}), 4096);
  EXPECT_THAT(config.array<double>({.hf = "rope_parameters.long_factor"}), ElementsAre(2.0));
}

TEST(Config, Gemma3HasTwoRopesInEverySpelling) {
  constexpr ConfigKey kFull{.hf = "rope_parameters.full_attention.rope_theta"};
  constexpr ConfigKey kSliding{.hf = "rope_parameters.sliding_attention.rope_theta"};
  for (
      const char* json :
      {R"({"model_type": "gemma3_text", "rope_theta": 1000000, "rope_local_base_freq": 10000})",
       R"({"model_type": "gemma3_text", "rope_parameters": {"full_attention": {"rope_theta": 1000000, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 10000, "rope_type": "default"}}})"}) {
    const Config config = hf(json);
    EXPECT_EQ(config.number(kFull), 1e6) << json;
    EXPECT_EQ(config.number(kSliding), 1e4) << json;
  }
  const Config scaled = hf(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})");
  EXPECT_EQ(scaled.string({.hf = "rope_parameters.full_attention.rope_type"}), "linear");
  EXPECT_EQ(scaled.string({.hf = "rope_parameters.sliding_attention.rope_type"}), "default");
}

TEST(Config, DtypeAndTextConfig) {
  EXPECT_EQ(hf(R"({"torch_dtype": "bfloat16"})").string({.hf = "dtype"}), "bfloat16");
  EXPECT_EQ(hf(R"({"dtype": "float16"})").string({.hf = "dtype"}), "float16");
  const Config nested = hf(R"({"architectures": ["Gemma3ForConditionalGeneration"], "num_hidden_layers": 99, "outer": 1,
      "text_config": {"architectures": null, "num_hidden_layers": 26}})");
  EXPECT_EQ(nested.architecture(), "Gemma3ForConditionalGeneration");
  EXPECT_EQ(nested.integer(kLayers), 26);
  EXPECT_EQ(nested.integer({.hf = "outer"}), 1);
  EXPECT_EQ(hf(R"({"model_type": "llama"})").architecture(), "llama");
  EXPECT_EQ(hf(R"({"architectures": [3]})").architecture(), "");
}

TEST(Config, GgufKeysFollowTheArchitecture) {
  const std::string file = read_whole(test_data("all_types.gguf"));
  const GgufContents contents = read_gguf(bytes_of(file), "x.gguf");
  const Config config = Config::from_gguf(contents.metadata);
  EXPECT_EQ(config.architecture(), "llama");
  EXPECT_EQ(config.integer(kLayers), 2);
  EXPECT_EQ(config.number(kTheta), 1e6);
  EXPECT_EQ(config.string({.gguf = "general.architecture"}), "llama");
  EXPECT_EQ(config.optional_string({.hf = "only_hf"}), std::nullopt);
  EXPECT_EQ(message_of([&] { config.integer({.gguf = "attention.head_count"}); }),
            "x.gguf: 'llama.attention.head_count' is missing");
}

TEST(Config, GgufNumbersThatAreNotFiniteAreRefused) {
  GgufMetadataBuilder builder;
  builder.add_string("general.architecture", "llama");
  builder.add_f32("llama.nan", std::numeric_limits<float>::quiet_NaN());
  const std::string file = encode_gguf_header(builder, {});
  const GgufContents contents = read_gguf(bytes_of(file), "x.gguf");
  const Config config = Config::from_gguf(contents.metadata);
  EXPECT_THAT(message_of([&] { config.number({.gguf = "nan"}); }), HasSubstr("not a finite number"));
  EXPECT_THAT(message_of([&] { config.integer({.gguf = "nan"}); }), HasSubstr("llama.nan"));
}

}  // namespace
}  // namespace millrace
