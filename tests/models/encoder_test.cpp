// Encoders, embedding models and cross-encoders against transformers: from sentence-transformers folders and GGUF, all
// inputs of a case in one batch.
#include "models/encoder_golden.h"

#include "base/error.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class EncoderTest : public testing::TestWithParam<std::string> {};

TEST_P(EncoderTest, Folder) {
  const EncoderInputs inputs = read_inputs(GetParam());
  const std::string folder = (encoders_folder() / GetParam()).string();
  expect_results(folder, inputs, {.threads = 2, .exact = true, .sequences = 8, .rows = 512, .block_size = 16});
  // One text at a time, and the default precision, which is exact for f32 weights but for a decoder's f16 KV cache.
  const bool decoder = GetParam() == "qwen3_embedding";
  expect_results(folder, inputs, {.threads = 1, .exact = decoder, .sequences = 1, .block_size = 64});
}

TEST_P(EncoderTest, Gguf) {
  const fs::path file = encoders_folder() / GetParam() / "model.gguf";
  if (!fs::exists(file)) GTEST_SKIP() << "GGUF cannot say what this case covers";
  expect_results(file.string(), read_inputs(GetParam()),
                 {.threads = 2, .exact = true, .sequences = 3, .rows = 200, .block_size = 16});
}

TEST(Encoders, AreThere) { EXPECT_FALSE(all_encoders().empty()) << encoders_folder(); }

TEST(Encoders, RefuseToGenerateAndLongTexts) {
  auto runner = load((encoders_folder() / "bert").string(), {.threads = 1});
  Engine engine(*runner);
  const auto problem = [&](Request request) -> std::string {
    try {
      engine.submit(std::move(request));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(problem({.prompt = {5, 6}}).find("makes embeddings"), std::string::npos);
  EXPECT_NE(problem({.prompt = {5, 6}, .kind = RequestKind::Score, .prompt_logprobs = 0}).find("makes embeddings"),
            std::string::npos);
  const std::string too_long = problem({.prompt = std::vector<int32_t>(129, 5), .kind = RequestKind::Embed});
  EXPECT_NE(too_long.find("maximum context length is 128"), std::string::npos) << too_long;
}

// The message of loading a case with one key of a JSON file changed.
std::string message_of(const std::string& name, const std::string& file, const std::string& key,
                       const nlohmann::json& value) {
  const fs::path folder = fs::path(testing::TempDir()) / ("millrace_encoder_" + name);
  fs::remove_all(folder);
  fs::copy(encoders_folder() / name, folder, fs::copy_options::recursive);
  std::ifstream in(folder / file);
  nlohmann::json json = nlohmann::json::parse(in);
  (json.is_array() ? json.at(0) : json)[key] = value;
  std::ofstream(folder / file) << json.dump();
  std::string message;
  try {
    load(folder.string(), {.threads = 1});
  } catch (const Error& e) {
    message = e.what();
  }
  fs::remove_all(folder);
  return message;
}

TEST(Encoders, SettingsThatAreNotImplementedAreRefused) {
  const auto expect = [](const std::string& message, const std::string& named) {
    EXPECT_NE(message.find(named), std::string::npos) << message << " does not name " << named;
  };
  expect(message_of("bert", "config.json", "position_embedding_type", "relative_key"), "relative_key");
  expect(message_of("bert", "config.json", "is_decoder", true), "decoder");
  expect(message_of("bert", "config.json", "hidden_act", "quick_gelu"), "quick_gelu");
  expect(message_of("bert", "1_Pooling/config.json", "pooling_mode_max_tokens", true), "pooling_mode_max_tokens");
  expect(message_of("bert", "1_Pooling/config.json", "pooling_mode_cls_token", true), "pooling_mode");
  expect(message_of("bert", "modules.json", "type", "sentence_transformers.models.CNN"), "CNN");
  expect(message_of("bert", "modules.json", "path", "../elsewhere"), "../elsewhere");
  expect(message_of("bert_dense", "2_Dense/config.json", "activation_function", "torch.nn.ReLU"), "ReLU");
  expect(message_of("bert_dense", "2_Dense/config.json", "in_features", 31), "dense module");
  expect(message_of("nomic_bert", "config.json", "prenorm", true), "prenorm");
  expect(message_of("modernbert_cross", "config.json", "classifier_activation", "silu"), "silu");
  expect(message_of("roberta", "config.json", "pad_token_id", 500), "positions");
}

INSTANTIATE_TEST_SUITE_P(All, EncoderTest, testing::ValuesIn(all_encoders()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace millrace
