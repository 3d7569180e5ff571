// Folders with a tokenizer and a template, other number formats, and what is refused.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <set>

#include "convert/convert.h"
#include "engine/text_model.h"
#include "models/golden.h"
#include "scratch.h"

namespace millrace {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class ConvertFolder : public testing::Test {
 protected:
  fs::path folder() const { return scratch_.path() / "tiny"; }
  fs::path out() const { return scratch_.path() / "out.gguf"; }

  void copy_golden(const std::string& name) {
    fs::create_directories(folder());
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(goldens_folder() / name / file, folder() / file, fs::copy_options::overwrite_existing);
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder() / name) << text; }
  void change_config(const std::string& key, const nlohmann::json& value) {
    auto config = nlohmann::json::parse(read_whole(folder() / "config.json"));
    config[key] = value;
    write("config.json", config.dump());
  }

  QuantizeSummary convert(const char* type = nullptr) {
    ThreadPool pool(2);
    return convert_folder(*open_weights(folder().string()), {out(), type != nullptr ? find_recipe(type) : nullptr},
                          pool, [](int64_t, int64_t) {});
  }
  std::string error(const char* type = nullptr) {
    try {
      convert(type);
    } catch (const Error& e) {
      return e.what();
    }
    return "converted";
  }
  // Files beside the output that a failed conversion must not leave.
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(scratch_.path()), fs::directory_iterator()));
  }

  ScratchFolder scratch_;
};

// A byte-level vocabulary of the 256 bytes without merges but one, and the special tokens of a chat.
std::string byte_vocabulary() {
  nlohmann::json vocab;
  int next = 0;
  const auto put = [&](uint32_t code) {
    std::string text;
    if (code < 0x80) {
      text = static_cast<char>(code);
    } else {
      text = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
    }
    vocab[text] = next++;
  };
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte < 127) || (byte >= 161 && byte != 173);
    if (printable) put(byte);
  }
  for (uint32_t code = 256; next < 256; ++code) put(code);
  vocab["he"] = next++;
  nlohmann::json added;
  for (const char* text : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"})
    added.push_back({{"id", next++}, {"content", text}, {"special", true}, {"normalized", false}});
  const nlohmann::json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return nlohmann::json{{"added_tokens", added},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", bytes},
                        {"decoder", {{"type", "ByteLevel"}}},
                        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h e"}}}}}
      .dump();
}

// An embedding with a row for each token, and the rest of the golden as it is.
void widen_vocabulary(const fs::path& folder, int64_t rows) {
  const auto config_path = folder / "config.json";
  auto config = nlohmann::json::parse(read_whole(config_path));
  const auto hidden = config["hidden_size"].get<int64_t>();
  config["vocab_size"] = rows;
  std::ofstream(config_path) << config.dump();
  const MappedFile file(folder / "model.safetensors");
  nlohmann::json header;
  std::string data;
  for (const TensorInfo& tensor : read_safetensors(file.bytes(), "golden")) {
    std::string bytes(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
    auto shape = tensor.shape;
    if (tensor.name == "model.embed_tokens.weight" || tensor.name == "lm_head.weight") {
      shape[0] = rows;
      bytes.resize(static_cast<size_t>(rows * hidden) * sizeof(float), '\0');
    }
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::ofstream out(folder / "wide", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof size) << text << data;
  out.close();
  fs::rename(folder / "wide", folder / "model.safetensors");
}

TEST_F(ConvertFolder, CarriesTokenizerTemplateAndEndTokens) {
  copy_golden("llama_gqa");
  widen_vocabulary(folder(), 288);
  write("tokenizer.json", byte_vocabulary());
  write("tokenizer_config.json", R"({"eos_token": "<|im_end|>", "add_bos_token": false,
        "chat_template": "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"})");
  write("generation_config.json", R"({"eos_token_id": [258, 200]})");
  convert();
  const auto folder_model = load_text_model(*open_weights(folder().string()));
  const auto file_model = load_text_model(*open_weights(out().string()));
  for (const char* text : {"hehe <|im_start|>x", "Grüße, 世界\n\n 12", ""})
    EXPECT_EQ(file_model.tokenizer->encode(text), folder_model.tokenizer->encode(text)) << text;
  ASSERT_TRUE(file_model.chat.has_value());
  EXPECT_EQ(file_model.chat->sources.choose(false), folder_model.chat->sources.choose(false));
  for (const int32_t end : folder_model.end_tokens) EXPECT_THAT(file_model.end_tokens, testing::Contains(end));
  EXPECT_EQ(file_model.tokenizer->eos(), 258);
}

TEST_F(ConvertFolder, WritesOtherFormats) {
  copy_golden("llama_gqa");
  convert("Q8_0");
  const auto quantized = open_weights(out().string());
  EXPECT_EQ(quantized->find("blk.0.attn_q.weight")->dtype, DType::Q8_0);
  EXPECT_EQ(quantized->find("blk.0.attn_norm.weight")->dtype, DType::F32);
  EXPECT_EQ(quantized->gguf()->integer("general.file_type"), 7);
  convert("BF16");  // replaces the file
  EXPECT_EQ(open_weights(out().string())->find("token_embd.weight")->dtype, DType::BF16);
}

TEST_F(ConvertFolder, RefusesByName) {
  copy_golden("llama_gqa");
  change_config("hidden_act", "gelu");
  EXPECT_THAT(error(), HasSubstr("cannot express the activation"));
  copy_golden("mistral_sliding_window");
  EXPECT_THAT(error(), HasSubstr("a sliding window"));
  copy_golden("opt");
  EXPECT_THAT(error(), HasSubstr("GGUF has no architecture for 'OPTForCausalLM'"));
  copy_golden("llama_gqa");
  change_config("architectures", {"NoSuchModel"});
  EXPECT_THAT(error(), HasSubstr("NoSuchModel"));
  EXPECT_EQ(files(), 1u) << "a refused conversion leaves a file";
}

// The golden has settings that GGUF cannot express; with others its file has the folder's logits at every length.
TEST_F(ConvertFolder, LongropeOfPhimoe) {
  copy_golden("phimoe_longrope");
  EXPECT_NE(error(), "converted");
  change_config("sliding_window", nullptr);
  change_config("router_jitter_noise", 0.01);
  EXPECT_THAT(error(), HasSubstr("short_mscale"));
  auto rope = nlohmann::json::parse(read_whole(folder() / "config.json"))["rope_parameters"];
  rope["long_mscale"] = rope["short_mscale"];
  change_config("rope_parameters", rope);
  convert("F32");
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 100; ++i) tokens.push_back(i * 7 % 60);  // 64 positions have the short factors
  const LoadOptions options{.threads = 2, .exact = true, .context = 100, .rows = 100, .logit_rows = 100};
  auto from_folder = load(folder().string(), options), from_file = load(out().string(), options);
  const auto want = all_logits(*from_folder, tokens, 100), got = all_logits(*from_file, tokens, 100);
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t j = 0; j < want[i].size(); ++j) ASSERT_NEAR(got[i][j], want[i][j], 1e-4) << i;
  }
}

TEST_F(ConvertFolder, RefusesRopeScalingOfLayersWithAWindow) {
  const nlohmann::json plain{{"rope_type", "default"}, {"rope_theta", 500.0}};
  const nlohmann::json scaled{{"rope_type", "linear"}, {"rope_theta", 500.0}, {"factor", 3.0}};
  for (const char* name : {"olmo3_layer_types", "gemma3"}) {
    copy_golden(name);
    change_config("rope_parameters", {{"full_attention", plain}, {"sliding_attention", scaled}});
    EXPECT_THAT(error(), HasSubstr("rope scaling 'linear' of layers with a window")) << name;
    change_config("rope_parameters", {{"full_attention", plain}, {"sliding_attention", plain}});
    EXPECT_EQ(error(), "converted") << name;
  }
}

// GGUF has the halves of a head interleaved, but heads of odd size have none.
TEST_F(ConvertFolder, HeadsOfOddSizeKeepTheirOrder) {
  copy_golden("granite_hybrid");  // its attention does not rotate
  change_config("num_attention_heads", 16);
  change_config("num_key_value_heads", 8);
  convert();
  Expected expected{.tokens = {5, 40, 7, 7, 61, 12, 33, 20}};
  const auto model = load(folder().string(), {.exact = true, .context = 8, .rows = 8, .logit_rows = 8});
  for (const auto& row : all_logits(*model, expected.tokens, 8)) {
    expected.rows.push_back(static_cast<int32_t>(expected.rows.size()));
    expected.logits.insert(expected.logits.end(), row.begin(), row.end());
  }
  EXPECT_LE(logit_error(out().string(), expected), 1e-5);
}

TEST_F(ConvertFolder, RefusesBadPlaces) {
  copy_golden("llama_gqa");
  ThreadPool pool(1);
  const auto source = open_weights(folder().string());
  const auto to = [&](const fs::path& path) {
    try {
      convert_folder(*source, {path, nullptr}, pool, [](int64_t, int64_t) {});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("converted");
  };
  EXPECT_THAT(to(scratch_.path()), HasSubstr("not a regular file"));
  EXPECT_THAT(to(folder() / "model.safetensors"), HasSubstr("would overwrite the input"));
  EXPECT_THAT(to(scratch_.path() / "no" / "such" / "folder.gguf"), HasSubstr("No such file or directory"));
}

TEST_F(ConvertFolder, AFullDiskLeavesNothing) {
  copy_golden("llama_gqa");
  // A limit on the size of files is the disk that every machine has.
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 64 << 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = error();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("out.gguf: File too large"));
  EXPECT_EQ(files(), 1u);
}

TEST_F(ConvertFolder, ABrokenFolderIsOneError) {
  copy_golden("llama_gqa");
  fs::resize_file(folder() / "model.safetensors", 1000);
  EXPECT_NE(error(), "converted");
  copy_golden("llama_gqa");
  fs::remove(folder() / "config.json");
  EXPECT_THAT(error(), HasSubstr("config.json"));
  copy_golden("llama_gqa");
  write("tokenizer.json", "{\"model\": 3}");
  EXPECT_THAT(error(), HasSubstr("tokenizer.json"));
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace millrace
