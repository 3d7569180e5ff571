// Adapters whose exporters name or divide a layer's matrices otherwise than the model's file.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <random>

#include "base/error.h"
#include "engine/adapters.h"
#include "formats/gguf_writer.h"
#include "fresh_seed.h"
#include "models/golden.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int64_t kRank = 2;

struct Pair {
  std::string name;
  std::vector<float> a, b;  // [rank, k], [n, rank]
  int64_t k() const { return std::ssize(a) / kRank; }
  int64_t n() const { return std::ssize(b) / kRank; }
};

Pair random_pair(std::mt19937& random, int64_t n, int64_t k) {
  std::normal_distribution<float> normal(0, 0.3F);
  Pair pair{"", std::vector<float>(size_t(kRank * k)), std::vector<float>(size_t(n * kRank))};
  for (float& value : pair.a) value = normal(random);
  for (float& value : pair.b) value = normal(random);
  return pair;
}

// The rows [first, first + n) of a pair as one of their own.
Pair rows_of(const Pair& pair, int64_t first, int64_t n) {
  return {"", pair.a, {pair.b.begin() + first * kRank, pair.b.begin() + (first + n) * kRank}};
}

fs::path write_gguf(const fs::path& path, const std::vector<Pair>& pairs) {
  GgufMetadataBuilder keys;
  keys.add_string("general.architecture", "chatglm");
  keys.add_string("general.type", "adapter");
  keys.add_string("adapter.type", "lora");
  keys.add_f32("adapter.lora.alpha", 2 * kRank);
  std::vector<GgufTensor> tensors;
  for (const Pair& pair : pairs) {
    tensors.push_back({pair.name + ".weight.lora_a", DType::F32, {kRank, pair.k()}});
    tensors.push_back({pair.name + ".weight.lora_b", DType::F32, {pair.n(), kRank}});
  }
  GgufWriter writer(path, keys, tensors);
  for (const Pair& pair : pairs) {
    for (const auto* values : {&pair.a, &pair.b}) writer.write(std::as_bytes(std::span(*values)));
  }
  writer.finish();
  return path;
}

fs::path write_peft(const fs::path& folder, const std::vector<Pair>& pairs) {
  fs::create_directories(folder);
  std::ofstream(folder / "adapter_config.json") << R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4})";
  nlohmann::json header;
  std::string bytes;
  const auto add = [&](const std::string& name, const std::vector<float>& values, int64_t rows) {
    const size_t begin = bytes.size();
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    header["base_model.model." + name] = {
        {"dtype", "F32"}, {"shape", {rows, std::ssize(values) / rows}}, {"data_offsets", {begin, bytes.size()}}};
  };
  for (const Pair& pair : pairs) {
    add(pair.name + ".lora_A.weight", pair.a, kRank);
    add(pair.name + ".lora_B.weight", pair.b, pair.n());
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::ofstream file(folder / "adapter_model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof size) << text << bytes;
  return folder;
}

std::vector<float> logits_with(const fs::path& model, const fs::path& adapter) {
  const auto runner = load(
      model.string(),
      {.threads = 2, .exact = true, .context = 32, .rows = 16, .logit_rows = 16, .block_size = 16, .adapters = true});
  if (!adapter.empty()) {
    runner->rank().adapters().place("a", runner->rank().read_adapter(adapter));
    runner->rank().tables().usual_adapter = runner->rank().adapters().find("a")->slot;
  }
  std::vector<float> logits;
  for (const auto& row : all_logits(*runner, {3, 14, 15, 9, 26, 5, 35, 8}, 8))
    logits.insert(logits.end(), row.begin(), row.end());
  return logits;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0, most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max<double>(largest, std::abs(b[i]));
    most = std::max<double>(most, std::abs(a[i] - b[i]));
  }
  return most / largest;
}

// Every pair of the model's layer, in the names of one exporter.
struct Form {
  std::string name;
  fs::path adapter;
};

class LoraOfChatGlm : public testing::Test {
 protected:
  LoraOfChatGlm() : folder_(fs::path(testing::TempDir()) / "millrace_lora_names") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::mt19937 random(fresh_seed());
    qkv_ = random_pair(random, 64, 32);
    out_ = random_pair(random, 32, 32);
    gate_up_ = random_pair(random, 128, 32);
    down_ = random_pair(random, 32, 64);
  }
  ~LoraOfChatGlm() override { fs::remove_all(folder_); }

  Pair named(Pair pair, const std::string& name) const {
    pair.name = name;
    return pair;
  }
  std::vector<Pair> layer(const std::string& qkv, const std::string& out, const std::string& gate_up,
                          const std::string& down) const {
    return {named(qkv_, qkv), named(out_, out), named(gate_up_, gate_up), named(down_, down)};
  }
  // q, k and v apart.
  std::vector<Pair> layer(const std::string& q, const std::string& k, const std::string& v, const std::string& out,
                          const std::string& gate_up, const std::string& down) const {
    return {named(rows_of(qkv_, 0, 32), q),  named(rows_of(qkv_, 32, 16), k),
            named(rows_of(qkv_, 48, 16), v), named(out_, out),
            named(gate_up_, gate_up),        named(down_, down)};
  }

  fs::path folder_;
  Pair qkv_, out_, gate_up_, down_;
};

TEST_F(LoraOfChatGlm, QkvIsOneMatrixOrThree) {
  const std::string own = "transformer.encoder.layers.1.", usual = "model.layers.1.";
  const std::vector<Form> forms = {
      {"gguf, whole", write_gguf(folder_ / "whole.gguf",
                                 layer("blk.1.attn_qkv", "blk.1.attn_output", "blk.1.ffn_up", "blk.1.ffn_down"))},
      {"gguf, apart", write_gguf(folder_ / "apart.gguf", layer("blk.1.attn_q", "blk.1.attn_k", "blk.1.attn_v",
                                                               "blk.1.attn_output", "blk.1.ffn_up", "blk.1.ffn_down"))},
      {"peft, whole",
       write_peft(folder_ / "whole", layer(own + "self_attention.query_key_value", own + "self_attention.dense",
                                           own + "mlp.dense_h_to_4h", own + "mlp.dense_4h_to_h"))},
      {"peft, apart", write_peft(folder_ / "apart", layer(usual + "self_attn.q_proj", usual + "self_attn.k_proj",
                                                          usual + "self_attn.v_proj", usual + "self_attn.o_proj",
                                                          usual + "mlp.gate_up_proj", usual + "mlp.down_proj"))}};
  for (const char* golden : {"chatglm2", "glm"}) {  // qkv as one matrix, and as three
    for (const fs::path& model : {goldens_folder() / golden / "model.gguf", goldens_folder() / golden}) {
      const std::vector<float> expected = logits_with(model, forms[0].adapter);
      EXPECT_GT(difference(logits_with(model, {}), expected), 1e-2);
      for (const Form& form : forms) {
        EXPECT_LE(difference(logits_with(model, form.adapter), expected), 1e-5) << model << " " << form.name;
      }
    }
  }
}

TEST_F(LoraOfChatGlm, OnePartHasTheRowsOfItsName) {
  // An adapter of k alone equals one of the whole matrix with zeros elsewhere.
  Pair whole = qkv_;
  for (int64_t i = 0; i < 64; ++i) {
    if (i < 32 || i >= 48) std::fill_n(&whole.b[size_t(i * kRank)], kRank, 0.0F);
  }
  const fs::path one = write_gguf(folder_ / "one.gguf", {named(rows_of(qkv_, 32, 16), "blk.0.attn_k")});
  const fs::path all = write_gguf(folder_ / "all.gguf", {named(whole, "blk.0.attn_qkv")});
  for (const char* golden : {"chatglm2", "glm"}) {
    const fs::path model = goldens_folder() / golden / "model.gguf";
    EXPECT_LE(difference(logits_with(model, one), logits_with(model, all)), 1e-5);
    EXPECT_GT(difference(logits_with(model, one), logits_with(model, {})), 1e-3);
  }
}

TEST_F(LoraOfChatGlm, RowsAreChangedOnce) {
  const fs::path both =
      write_gguf(folder_ / "both.gguf", {named(qkv_, "blk.0.attn_qkv"), named(rows_of(qkv_, 0, 32), "blk.0.attn_q")});
  for (const char* golden : {"chatglm2", "glm"}) {
    try {
      logits_with(goldens_folder() / golden / "model.gguf", both);
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("share rows"));
    }
  }
}

}  // namespace
}  // namespace millrace
