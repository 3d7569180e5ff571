// A folder converted with an adapter has PEFT's logits without the adapter.
#include "base/error.h"
#include "convert/convert.h"
#include "formats/gguf_writer.h"
#include "models/golden.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

Expected expected_of(const std::string& lora) {
  const MappedFile file(fs::path(MILLRACE_TEST_DATA) / "loras" / lora / "expected.safetensors");
  Expected expected;
  for (const auto& tensor : read_safetensors(file.bytes(), "expected")) {
    const auto copy = [&](auto& out) {
      out.resize(tensor.bytes / sizeof(out[0]));
      std::memcpy(out.data(), tensor.data, tensor.bytes);
    };
    tensor.name == "tokens" ? copy(expected.tokens) : copy(expected.logits);
  }
  for (int32_t row = 0; row < std::ssize(expected.tokens); ++row) expected.rows.push_back(row);
  return expected;
}

TEST(ConvertLora, FusesAdapters) {
  for (const auto& [lora, golden] : {std::pair("llama", "llama_gqa"),
                                     {"llama_ends", "llama_gqa"},
                                     {"gpt2", "gpt2"},
                                     {"qwen3_moe_experts", "qwen3_moe"},
                                     {"qwen3_moe_some", "qwen3_moe"},
                                     {"mixtral_each", "mixtral"},
                                     {"gpt_oss", "gpt_oss"}}) {
    const fs::path out = fs::path(testing::TempDir()) / (std::string("millrace_fused_") + lora + ".gguf");
    const auto source = open_weights((goldens_folder() / golden).string());
    ThreadPool pool(2);
    convert_folder(*source, {out, find_recipe("F32"), fs::path(MILLRACE_TEST_DATA) / "loras" / lora}, pool,
                   [](int64_t, int64_t) {});
    EXPECT_LE(logit_error(out.string(), expected_of(lora)), 1e-4) << lora;
    fs::remove(out);
  }
}

TEST(ConvertLora, RefusesHalfOfATiedMatrixAndOneThatIsStoredInParts) {
  for (const auto& [lora, golden] :
       {std::pair("llama_tied_ends", "llama_mqa_tied"), {"granite_shared", "granitemoeshared"}}) {
    const fs::path out = fs::path(testing::TempDir()) / "millrace_fused_not.gguf";
    fs::remove(out);
    const auto source = open_weights((goldens_folder() / golden).string());
    ThreadPool pool(2);
    EXPECT_THROW(convert_folder(*source, {out, nullptr, fs::path(MILLRACE_TEST_DATA) / "loras" / lora}, pool,
                                [](int64_t, int64_t) {}),
                 Error)
        << lora;
    EXPECT_FALSE(fs::exists(out));
  }
}

// An adapter of rank 1 with ones, for a matrix of `rows` rows and 32 columns.
fs::path adapter_of(const std::string& matrix, int64_t rows) {
  GgufMetadataBuilder keys;
  keys.add_string("general.architecture", "chatglm");
  keys.add_string("general.type", "adapter");
  keys.add_string("adapter.type", "lora");
  keys.add_f32("adapter.lora.alpha", 1);
  const fs::path path = fs::path(testing::TempDir()) / ("millrace_" + matrix + ".gguf");
  const std::vector<GgufTensor> tensors{{matrix + ".weight.lora_a", DType::F32, {1, 32}},
                                        {matrix + ".weight.lora_b", DType::F32, {rows, 1}}};
  GgufWriter writer(path, keys, tensors);
  const std::vector<float> ones(static_cast<size_t>(std::max<int64_t>(rows, 32)), 1.0F);
  writer.write(std::as_bytes(std::span(ones).first(32)));
  writer.write(std::as_bytes(std::span(ones).first(static_cast<size_t>(rows))));
  writer.finish();
  return path;
}

TEST(ConvertLora, RefusesSomeRowsOfAMatrixThatIsStoredWhole) {
  const fs::path out = fs::path(testing::TempDir()) / "millrace_fused_rows.gguf";
  const auto source = open_weights((goldens_folder() / "chatglm2").string());
  ThreadPool pool(2);
  for (const auto& [matrix, rows, whole] :
       {std::tuple("blk.0.attn_q", 32, false), {"blk.0.attn_k", 16, false}, {"blk.0.attn_qkv", 64, true}}) {
    fs::remove(out);
    const fs::path adapter = adapter_of(matrix, rows);
    const auto convert = [&] { convert_folder(*source, {out, nullptr, adapter}, pool, [](int64_t, int64_t) {}); };
    if (whole) {
      EXPECT_NO_THROW(convert()) << matrix;
    } else {
      EXPECT_THROW(convert(), Error) << matrix;
    }
    EXPECT_EQ(fs::exists(out), whole) << matrix;
    fs::remove(adapter);
  }
  fs::remove(out);
}

}  // namespace
}  // namespace millrace
