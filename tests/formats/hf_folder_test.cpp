#include "formats/hf_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch.h"

namespace millrace {
namespace {

using testing::HasSubstr;

constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2})";

std::string one_tensor(const std::string& name, float value) {
  return safetensors_file(R"({")" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", raw(value));
}

class HfFolderTest : public testing::Test {
 protected:
  void SetUp() override { scratch_.write("config.json", kConfig); }
  std::unique_ptr<WeightSource> open() const { return open_weights(scratch_.path().string()); }
  std::string error() const {
    return message_of([&] { open(); });
  }
  float value(const WeightSource& source, const std::string& name) const {
    float v = 0;
    std::memcpy(&v, source.tensor(name, {1}).data, sizeof(v));
    return v;
  }
  void write_index(const std::string& map) const {
    scratch_.write("model.safetensors.index.json", R"({"metadata": {"total_size": 8}, "weight_map": )" + map + "}");
  }
  ScratchFolder scratch_;
};

TEST_F(HfFolderTest, OneFile) {
  scratch_.write("model.safetensors", one_tensor("a", 3));
  scratch_.write("tokenizer.json", "{}");
  const auto source = open();
  EXPECT_EQ(source->convention(), WeightSource::Convention::HuggingFace);
  EXPECT_EQ(source->gguf(), nullptr);
  EXPECT_EQ(value(*source, "a"), 3);
  EXPECT_EQ(source->config().architecture(), "LlamaForCausalLM");
  EXPECT_EQ(source->text("tokenizer.json"), "{}");
  EXPECT_EQ(source->text("generation_config.json"), std::nullopt);
}

TEST_F(HfFolderTest, Shards) {
  scratch_.write("model-00001-of-00002.safetensors", one_tensor("a", 1));
  scratch_.write("model-00002-of-00002.safetensors", one_tensor("b", 2));
  write_index(R"({"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})");
  const auto source = open();
  EXPECT_EQ(source->tensors().size(), 2u);
  EXPECT_EQ(value(*source, "a"), 1);
  EXPECT_EQ(value(*source, "b"), 2);
}

TEST_F(HfFolderTest, BrokenIndexesAreRefused) {
  scratch_.write("s1.safetensors", one_tensor("a", 1));
  write_index(R"({"a": "s1.safetensors", "b": "s1.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("'b' is not in s1.safetensors"));
  write_index(R"({"a": "s2.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("s2.safetensors"));
  write_index(R"({"a": "../s1.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("not the name of a file beside it"));
  write_index(R"({"a": 3})");
  EXPECT_THAT(error(), HasSubstr("'a' names no file"));
  write_index("[]");
  EXPECT_THAT(error(), HasSubstr("no weight_map"));
  scratch_.write("model.safetensors.index.json", "{");
  EXPECT_THAT(error(), HasSubstr("not valid JSON"));
  scratch_.write("model.safetensors.index.json", "3");
  EXPECT_THAT(error(), HasSubstr("no weight_map"));
}

TEST_F(HfFolderTest, ATensorInTwoShardsIsRefused) {
  scratch_.write("s1.safetensors", one_tensor("a", 1));
  scratch_.write("s2.safetensors", one_tensor("a", 1));
  write_index(R"({"a": "s1.safetensors", "b": "s2.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("'a' appears twice"));
}

TEST_F(HfFolderTest, AFolderWithoutWeightsStillGivesItsTexts) {
  scratch_.write("tokenizer.json", "{}");
  auto source = open();
  EXPECT_TRUE(source->text("tokenizer.json").has_value());
  EXPECT_THAT(message_of([&] { source->tensor("a", {1}); }), HasSubstr("no .safetensors files"));
  scratch_.write("pytorch_model.bin", "");
  source = open();
  EXPECT_THAT(message_of([&] { source->tensor("a", {1}); }), HasSubstr("pytorch_model.bin cannot be read"));
  std::filesystem::remove(scratch_.path() / "config.json");
  source = open();
  EXPECT_THAT(message_of([&] { source->config(); }), HasSubstr("no config.json"));
}

TEST_F(HfFolderTest, UnknownFilesWithoutAnIndexAreRefused) {
  scratch_.write("x.safetensors", one_tensor("a", 1));
  EXPECT_EQ(value(*open(), "a"), 1);  // a single file is unambiguous
  scratch_.write("y.safetensors", one_tensor("b", 1));
  EXPECT_THAT(error(), HasSubstr("no model.safetensors.index.json"));
}

TEST_F(HfFolderTest, OtherDtypesAreListedButNotGiven) {
  scratch_.write("model.safetensors",
                 safetensors_file(R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", "12345678"));
  const auto source = open();
  EXPECT_EQ(source->find("ids")->dtype_name, "I64");
  EXPECT_THAT(message_of([&] { source->tensor("ids", {1}); }), HasSubstr("is in I64, which cannot be run"));
}

}  // namespace
}  // namespace millrace
