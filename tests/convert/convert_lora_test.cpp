// A folder converted with an adapter has PEFT's logits without the adapter.
#include "base/error.h"
#include "convert/convert.h"
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

}  // namespace
}  // namespace millrace
