// Every golden as a converted folder: the file equals the golden's own GGUF file, and its logits are those of
// transformers. A golden that GGUF cannot express is refused, or its converted file has the right logits.
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
  std::string convert() {
    const auto source = open_weights(GetParam().folder.string());
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

// Architectures whose conversion is not implemented.
bool is_left_out(const Golden& golden) {
  for (const char* family : {"deepseek", "falcon_h1", "gemma4", "glm4_moe_lite", "granite_hybrid", "lfm2", "mamba2",
                             "minicpm3", "nemotron_h", "phimoe", "qwen3_5", "qwen3_next"}) {
    if (golden.name.starts_with(family)) return true;
  }
  return false;
}

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

void expect_same_tensors(const WeightSource& got, const WeightSource& want) {
  EXPECT_EQ(got.tensors().size(), want.tensors().size());
  for (const TensorInfo& tensor : want.tensors()) {
    const TensorInfo* found = got.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
    if (tensor.name == "position_embd.weight") continue;  // F32 as llama.cpp has it
    ASSERT_EQ(found->dtype, tensor.dtype) << tensor.name;
    ASSERT_EQ(found->bytes, tensor.bytes) << tensor.name;
    if (tensor.name == "rope_freqs.weight") continue;  // computed; the logits tell
    EXPECT_TRUE(std::equal(tensor.data, tensor.data + tensor.bytes, found->data)) << tensor.name;
  }
}

TEST_P(ConvertGolden, EqualsTheGguf) {
  const Golden& golden = GetParam();
  const std::string problem = convert();
  if (!problem.empty()) {
    EXPECT_TRUE(!golden.has_gguf || is_left_out(golden)) << problem;
    return;
  }
  EXPECT_FALSE(is_left_out(golden)) << "remove it from the list";
  if (golden.has_gguf && !golden.name.ends_with("_mxfp4")) {
    const auto got = open_weights(out_.string()), want = open_weights((golden.folder / "model.gguf").string());
    for (const auto& entry : want->gguf()->entries())
      EXPECT_TRUE(may_differ(entry.key) || is_same(*got->gguf(), entry)) << entry.key;
    expect_same_tensors(*got, *want);
  }
  EXPECT_LE(logit_error(out_.string(), read_expected(golden)), golden.tolerance);
}

INSTANTIATE_TEST_SUITE_P(All, ConvertGolden, testing::ValuesIn(all_goldens()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace millrace
