// Every golden encoder as a converted folder: the file's tensors are those of the golden's own GGUF file, and its
// vectors and scores are those of transformers.
#include <algorithm>

#include "base/error.h"
#include "convert/convert.h"
#include "engine/text_model.h"
#include "models/encoder_golden.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class ConvertEncoder : public testing::TestWithParam<std::string> {
 protected:
  ~ConvertEncoder() override { fs::remove(out_); }
  std::string convert(const char* type = nullptr) {
    ThreadPool pool(2);
    try {
      convert_folder(*open_weights(folder_.string()), {out_, type != nullptr ? find_recipe(type) : nullptr}, pool,
                     [](int64_t, int64_t) {});
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Unsupported) << error.what();
      return error.what();
    }
  }

  const fs::path folder_ = encoders_folder() / GetParam();
  const fs::path out_ = fs::path(testing::TempDir()) / ("millrace_converted_" + GetParam() + ".gguf");
};

TEST_P(ConvertEncoder, HasTheVectors) {
  const std::string problem = convert();
  if (!problem.empty()) {
    EXPECT_FALSE(fs::exists(folder_ / "model.gguf")) << problem;
    return;
  }
  expect_results(out_.string(), read_inputs(GetParam()),
                 {.threads = 2, .exact = true, .sequences = 3, .rows = 200, .block_size = 16});
  if (!fs::exists(folder_ / "model.gguf")) return;
  const auto got = open_weights(out_.string()), want = open_weights((folder_ / "model.gguf").string());
  EXPECT_EQ(got->tensors().size(), want->tensors().size());
  for (const TensorInfo& tensor : want->tensors()) {
    const TensorInfo* found = got->find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
    ASSERT_EQ(found->bytes, tensor.bytes) << tensor.name;
    EXPECT_TRUE(std::equal(tensor.data, tensor.data + tensor.bytes, found->data)) << tensor.name;
  }
  for (const auto& entry : want->gguf()->entries()) {
    if (entry.key.starts_with("general.") || entry.key.starts_with("tokenizer.")) continue;
    const GgufValue* value = got->gguf()->find(entry.key);
    ASSERT_NE(value, nullptr) << entry.key;
    const auto a = value->encoded(), b = entry.value.encoded();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << entry.key;
  }
}

TEST_P(ConvertEncoder, KeepsTheTokenizer) {
  if (!fs::exists(folder_ / "tokenizer.json") || !convert().empty()) GTEST_SKIP() << "no tokenizer, or no file";
  const auto folder = load_tokenizer(*open_weights(folder_.string())),
             file = load_tokenizer(*open_weights(out_.string()));
  for (const char* text : {"the cat", "The DOG sat, on the mat!", "unknowable", "", "[MASK] cat"})
    EXPECT_EQ(file->encode(text), folder->encode(text)) << text;
  const EncodedPair a = file->encode_pair("the cat", "the dog"), b = folder->encode_pair("the cat", "the dog");
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.second, b.second);
}

INSTANTIATE_TEST_SUITE_P(All, ConvertEncoder, testing::ValuesIn(all_encoders()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace millrace
