// Every golden as a converted folder: the file equals the golden's own GGUF file, and its logits are those of
// transformers. A golden that GGUF cannot express is refused, or its converted file has the right logits.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "convert/convert.h"
#include "models/golden.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class ConvertGolden : public testing::TestWithParam<Golden> {
 protected:
  ~ConvertGolden() override { fs::remove(out_); }

  // Empty: converted; else the reason why not.
  std::string convert(const fs::path& folder) {
    const auto source = open_weights(folder.string());
    ThreadPool pool(2);
    try {
      // BF16, the usual format for FP8 folders, cannot hold their products of value and scale.
      const bool fp8 = GetParam().name.ends_with("_fp8");
      convert_folder(*source, {out_, fp8 ? find_recipe("F32") : nullptr}, pool, [](int64_t, int64_t) {});
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Unsupported) << error.what();
      EXPECT_FALSE(fs::exists(out_));
      return error.what();
    }
  }

  const fs::path out_ = fs::path(testing::TempDir()) / ("millrace_converted_" + GetParam().name + ".gguf");
};

// Keys in which the goldens differ from converted files on purpose.
bool may_differ(std::string_view key) {
  const auto ends = [&](std::string_view end) { return key.ends_with(end); };
  return key.starts_with("general.") || key.starts_with("tokenizer.") ||
         key.starts_with("glm4moe.block_count") ||  // goldens count a layer without tensors
         ends(".nextn_predict_layers") ||           // as above
         key == "phi2.feed_forward_length" ||
         key == "gpt2.feed_forward_length" ||       // goldens have 4 * hidden, not the tensor's size
         key == "nemotron.rope.dimension_count" ||  // goldens take hidden / heads for the size of a head
         key == "command-r.rope.scaling.type" || key == "cohere2.rope.scaling.type" ||
         key == "nemotron.rope.scaling.type";  // goldens say "none"; so does the absence of the key
}

// Equal bytes, but for a float that was computed in another order.
bool is_same(const GgufMetadata& got, const GgufMetadata::Entry& want) {
  const GgufValue* value = got.find(want.key);
  if (value == nullptr || value->type() != want.value.type()) return false;
  if (const auto number = want.value.number(); number && want.value.type() == GgufType::F32)
    return std::abs(*value->number() - *number) <= 1e-6 * std::abs(*number);
  const auto a = value->encoded(), b = want.value.encoded();
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// A key with its value, to compare files by.
std::string text_of(const GgufMetadata::Entry& entry) {
  std::string text = std::string(entry.key) + " = ";
  if (entry.key == "general.name") return text;  // the folder's
  if (const auto number = entry.value.number()) return text + fmt::format("{}", *number);
  if (const auto integer = entry.value.integer()) return text + fmt::format("{}", *integer);
  const auto bytes = entry.value.encoded();
  return text + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// llama.cpp's loader insists on some biases that the model need not have.
bool is_zero_bias(const TensorInfo& tensor) {
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  return tensor.name.ends_with(".bias") && std::all_of(tensor.data, tensor.data + tensor.bytes, is_zero);
}

void expect_same_tensors(const WeightSource& got, const WeightSource& want) {
  for (const TensorInfo& tensor : got.tensors())
    EXPECT_TRUE(want.find(tensor.name) != nullptr || is_zero_bias(tensor)) << tensor.name;
  for (const TensorInfo& tensor : want.tensors()) {
    const TensorInfo* found = got.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
    if (tensor.name == "position_embd.weight") continue;  // F32 as llama.cpp has it
    ASSERT_EQ(found->dtype, tensor.dtype) << tensor.name;
    ASSERT_EQ(found->bytes, tensor.bytes) << tensor.name;
    if (tensor.name == "rope_freqs.weight" || tensor.name.ends_with(".ssm_a")) continue;  // computed; the logits tell
    EXPECT_TRUE(std::equal(tensor.data, tensor.data + tensor.bytes, found->data)) << tensor.name;
  }
}

TEST_P(ConvertGolden, EqualsTheGguf) {
  const Golden& golden = GetParam();
  const std::string problem = convert(golden.folder);
  if (!problem.empty()) {
    EXPECT_FALSE(golden.has_gguf) << problem;
    return;
  }
  // Their GGUF files have MXFP4 in more places, or kv_b undivided as older converters wrote it.
  const bool other_form = golden.name.ends_with("_mxfp4") || golden.name == "deepseek_v2_lite";
  if (golden.has_gguf && !other_form) {
    const auto got = open_weights(out_.string()), want = open_weights((golden.folder / "model.gguf").string());
    for (const auto& entry : want->gguf()->entries())
      EXPECT_TRUE(may_differ(entry.key) || is_same(*got->gguf(), entry)) << entry.key;
    expect_same_tensors(*got, *want);
  }
  EXPECT_LE(logit_error(out_.string(), read_expected(golden)), golden.tolerance);
}

// The config of published folders, which leaves out what transformers assumes, gives the same file.
TEST_P(ConvertGolden, ConfigOfTransformers4) {
  const Golden& golden = GetParam();
  if (!golden.has_v4) GTEST_SKIP() << "this model has one config only";
  const std::string problem = convert(golden.folder);
  const fs::path folder = fs::path(testing::TempDir()) / ("millrace_convert_v4_" + golden.name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(golden.folder)) {
    const auto name = entry.path().filename();
    if (name.string().starts_with("model") && name != "model.gguf") fs::copy_file(entry.path(), folder / name);
  }
  fs::copy_file(golden.folder / "config_v4.json", folder / "config.json");
  std::vector<std::string> wanted;
  if (problem.empty()) {
    const auto file = open_weights(out_.string());
    for (const auto& entry : file->gguf()->entries()) wanted.push_back(text_of(entry));
  }
  EXPECT_EQ(convert(folder).empty(), problem.empty()) << problem;
  if (problem.empty()) {
    const auto file = open_weights(out_.string());
    std::vector<std::string> got;
    for (const auto& entry : file->gguf()->entries()) got.push_back(text_of(entry));
    EXPECT_EQ(got, wanted);
  }
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(All, ConvertGolden, testing::ValuesIn(all_goldens()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace millrace
