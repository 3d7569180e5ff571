// Low-rank adapters against PEFT, in batches, with the prefix cache, and hostile files.
#include <gmock/gmock.h>
#include "engine/adapters.h"

#include <set>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/service.h"
#include "formats/quantize_model.h"
#include "models/golden.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct Lora {
  std::string name;
  fs::path folder, golden;
};

fs::path loras_folder() { return fs::path(MILLRACE_TEST_DATA) / "loras"; }

std::vector<Lora> all_loras() {
  std::vector<Lora> loras;
  std::ifstream index(loras_folder() / "cases.json");
  if (!index) return loras;
  for (const auto& entry : nlohmann::json::parse(index)) {
    const std::string name = entry["name"];
    loras.push_back({name, loras_folder() / name, goldens_folder() / entry["golden"].get<std::string>()});
  }
  return loras;
}

struct ExpectedRows {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
};

ExpectedRows read_rows(const fs::path& folder) {
  const MappedFile file(folder / "expected.safetensors");
  ExpectedRows expected;
  for (const auto& tensor : read_safetensors(file.bytes(), "expected")) {
    const auto copy = [&](auto& out) {
      out.resize(tensor.bytes / sizeof(out[0]));
      std::memcpy(out.data(), tensor.data, tensor.bytes);
    };
    tensor.name == "tokens" ? copy(expected.tokens) : copy(expected.logits);
  }
  return expected;
}

std::unique_ptr<Runner> load_for_adapters(const fs::path& model, LoadOptions options = {}) {
  options.threads = 2;
  options.adapters = true;
  options.block_size = 16;
  return load(model.string(), options);
}

std::shared_ptr<const Adapter> add(Runner& runner, const std::string& name, const fs::path& path) {
  runner.rank().adapters().place(name, runner.rank().read_adapter(path));
  return runner.rank().adapters().find(name);
}

// The largest difference from PEFT's logits, relative to the largest of those.
double error_of(const fs::path& model, const fs::path& adapter, const ExpectedRows& expected, int32_t chunk,
                bool exact = true, std::map<std::string, std::string> forced = {}, int64_t memory = 0) {
  const auto length = static_cast<int32_t>(expected.tokens.size());
  LoadOptions options{
      .forced = std::move(forced), .exact = exact, .context = length, .rows = length, .logit_rows = length};
  options.cpu_memory = memory;
  auto runner = load_for_adapters(model, options);
  EXPECT_EQ(runner->rank().mapped_experts().any(), memory > 0);
  const int32_t in_table = add(*runner, "a", adapter)->slot;
  BlockTable table = runner->state().new_table(length);
  const Slot slot = runner->state().new_slot();
  EXPECT_TRUE(table.reserve(length));
  StepBatch step(chunk, 1, chunk);
  double largest = 0, error = 0;
  for (int32_t done = 0; done < length; done += chunk) {
    const int32_t count = std::min(chunk, length - done);
    step.clear();
    step.add(std::span(expected.tokens).subspan(size_t(done), size_t(count)), done, length, table.pages(),
             StepBatch::Logits::All, slot.id(), in_table);
    const Matrix logits = runner->forward(step.batch());
    for (int64_t i = 0; i < count * logits.cols; ++i) {
      const double want = expected.logits[size_t(done * logits.cols + i)];
      const double got = logits.row<float>(i / logits.cols)[i % logits.cols];
      if (!std::isfinite(got)) return std::numeric_limits<double>::infinity();
      largest = std::max(largest, std::abs(want));
      error = std::max(error, std::abs(got - want));
    }
  }
  return error / largest;
}

class LoraGolden : public testing::TestWithParam<Lora> {};

TEST_P(LoraGolden, MatchesPeftInAllPairsOfConventions) {
  const Lora& lora = GetParam();
  const ExpectedRows expected = read_rows(lora.folder);
  const auto length = static_cast<int32_t>(expected.tokens.size());
  EXPECT_LE(error_of(lora.golden, lora.folder, expected, length), 1e-4);
  EXPECT_LE(error_of(lora.golden, lora.folder, expected, 5), 1e-4) << "in chunks";
  const fs::path gguf_adapter = lora.folder / "adapter.gguf", gguf_model = lora.golden / "model.gguf";
  if (fs::exists(gguf_adapter)) {
    EXPECT_LE(error_of(lora.golden, gguf_adapter, expected, length), 1e-4);
    EXPECT_LE(error_of(gguf_model, gguf_adapter, expected, length), 1e-4);
  }
  // The converter reorders rows of these architectures, or splits the matrix.
  const std::set<std::string> stored_otherwise = {"gpt_neox", "gemma4_experts", "nemotron_h_moe", "granite_shared"};
  if (stored_otherwise.contains(lora.name)) {
    EXPECT_THROW(error_of(gguf_model, lora.folder, expected, length), Error);
  } else {
    EXPECT_LE(error_of(gguf_model, lora.folder, expected, length), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LoraGolden, testing::ValuesIn(all_loras()),
                         [](const auto& info) { return info.param.name; });

TEST(LoraGoldens, Exist) { EXPECT_GE(all_loras().size(), 20u); }

TEST(LoraMemory, ThePlanHoldsTheAdaptersThatAreGivenAtLoad) {
  const Lora lora = all_loras().at(0);
  const auto given =
      load(lora.golden.string(), {.threads = 2, .context = 64, .adapter_files = {{"a", lora.folder.string()}}});
  const std::shared_ptr<const Adapter> adapter = given->rank().adapters().find("a");
  ASSERT_NE(adapter, nullptr);
  std::map<std::string, int64_t> lines;
  for (const auto& line : given->memory().lines) lines[line.what] = line.bytes;
  EXPECT_EQ(lines["adapters"], static_cast<int64_t>(adapter->bytes));
}

// Buffers of experts' adapters are large: their rows are all pairs of a step.
TEST(LoraMemory, BuffersAreOfTheLayersThatTheGivenAdaptersChange) {
  const fs::path model = goldens_folder() / "qwen3_moe", adapter = loras_folder() / "qwen3_moe";  // no experts
  const ExpectedRows expected = read_rows(adapter);
  const auto length = static_cast<int32_t>(expected.tokens.size());
  LoadOptions options{
      .threads = 2, .exact = true, .context = length, .rows = length, .logit_rows = length, .block_size = 16};
  options.adapter_files = {{"a", adapter.string()}};
  const auto only = load(model.string(), options);
  options.adapters = true;
  const auto any = load(model.string(), options);
  const auto line = [](const Runner& runner, const std::string& what) {
    for (const auto& one : runner.memory().lines) {
      if (one.what == what) return one.bytes;
    }
    return int64_t{0};
  };
  EXPECT_LT(line(*only, "activations"), line(*any, "activations"));
  EXPECT_LE(line(*only, "workspace"), line(*any, "workspace"));
  only->rank().tables().usual_adapter = only->rank().adapters().find("a")->slot;
  double largest = 0, error = 0;
  const auto rows = all_logits(*only, expected.tokens, length);
  for (size_t i = 0; i < expected.logits.size(); ++i) {
    const double want = expected.logits[i], got = rows[i / rows[0].size()][i % rows[0].size()];
    largest = std::max(largest, std::abs(want));
    error = std::max(error, std::abs(got - want));
  }
  EXPECT_LE(error / largest, 1e-4);
  EXPECT_NO_THROW(only->rank().read_adapter(adapter));
  EXPECT_THROW(only->rank().read_adapter(loras_folder() / "qwen3_moe_experts"), Error);
  EXPECT_NO_THROW(any->rank().read_adapter(loras_folder() / "qwen3_moe_experts"));
}

TEST(LoraMemory, ExpertsThatAnAdapterDoesNotChangeTakeNone) {
  const auto runner = load_for_adapters(goldens_folder() / "qwen3_moe", {.exact = true, .context = 64, .rows = 64});
  const PackedAdapter some = runner->rank().read_adapter(loras_folder() / "qwen3_moe_some");  // three experts of six
  int layers = 0;
  for (const PackedAdapter::Layer& layer : some.layers) {
    if (runner->rank().weights().sites()[static_cast<size_t>(layer.site)].grouped == nullptr) continue;
    ++layers;
    ASSERT_TRUE(layer.place);
    const LoraWeights placed = layer.at(some.bytes.data());
    EXPECT_EQ(std::vector<int32_t>(placed.place, placed.place + 6), (std::vector<int32_t>{0, -1, 1, -1, -1, 2}));
    EXPECT_EQ(layer.b - layer.a, Arena::padded(size_t(3 * placed.a_step) * sizeof(float)));
  }
  EXPECT_EQ(layers, 4);
  const PackedAdapter all = runner->rank().read_adapter(loras_folder() / "qwen3_moe_experts");
  for (const PackedAdapter::Layer& layer : all.layers) EXPECT_FALSE(layer.place);
}

std::vector<int32_t> generate(Engine& engine, std::vector<Request> requests, std::vector<int32_t>* cached = nullptr) {
  std::map<RequestId, std::vector<int32_t>> answers;
  std::map<RequestId, int32_t> from_cache;
  for (Request& request : requests) answers[engine.submit(std::move(request))];
  while (engine.step([&](const Emission& e) {
    if (e.token >= 0) answers[e.id].push_back(e.token);
    from_cache[e.id] = e.cached_tokens;
  })) {
  }
  std::vector<int32_t> all;
  for (const auto& [id, tokens] : answers) all.insert(all.end(), tokens.begin(), tokens.end());
  if (cached != nullptr) {
    for (const auto& [id, count] : from_cache) cached->push_back(count);
  }
  return all;
}

Request request_of(std::shared_ptr<const Adapter> adapter, int32_t first = 3) {
  Request request;
  for (int32_t i = 0; i < 40; ++i) request.prompt.push_back(first + i * 7 % 70);
  request.sampling.temperature = 0;
  request.max_tokens = 12;
  request.adapter = std::move(adapter);
  return request;
}

struct SharedBatch {
  const char *golden, *one, *two, *three;
};
class LoraBatches : public testing::TestWithParam<SharedBatch> {};

// Several adapters and none in one batch: each answer is that of its request alone, and the cache keeps them apart.
TEST_P(LoraBatches, AdaptersShareABatch) {
  for (const bool invariant : {false, true}) {
    auto runner =
        load_for_adapters(goldens_folder() / GetParam().golden,
                          {.exact = true, .context = 64, .sequences = 8, .rows = 64, .batch_invariant = invariant});
    const auto one = add(*runner, "one", loras_folder() / GetParam().one);
    const auto two = add(*runner, "two", loras_folder() / GetParam().two);
    const auto three = add(*runner, "three", loras_folder() / GetParam().three);
    Engine engine(*runner);
    std::vector<int32_t> alone;
    std::set<std::vector<int32_t>> distinct;
    for (const auto& adapter : {one, two, three, std::shared_ptr<const Adapter>()}) {
      std::vector<int32_t> cached;
      const auto answer = generate(engine, {request_of(adapter)}, &cached);
      EXPECT_EQ(cached, std::vector<int32_t>{0}) << "pages of another adapter";
      EXPECT_EQ(answer.size(), 12u);
      alone.insert(alone.end(), answer.begin(), answer.end());
      distinct.insert(answer);
    }
    EXPECT_EQ(distinct.size(), 4u);
    std::vector<int32_t> cached;
    EXPECT_EQ(generate(engine, {request_of(one), request_of(two), request_of(three), request_of(nullptr)}, &cached),
              alone);
    // The first is admitted alone and computed in the same chunks as before: here its whole prompt.
    for (size_t i = 1; i < cached.size(); ++i) EXPECT_GT(cached[i], 0) << "its own pages are reused";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LoraBatches,
    testing::Values(SharedBatch{"llama_gqa", "llama", "llama_patterns", "llama_ends/adapter.gguf"},
                    SharedBatch{"qwen3_moe", "qwen3_moe_experts", "qwen3_moe_some", "qwen3_moe_router"},
                    SharedBatch{"qwen3_moe", "qwen3_moe_some", "qwen3_moe", "qwen3_moe_experts/adapter.gguf"}));

TEST(LoraEngine, AnUnloadedAdapterServesItsLastRequest) {
  auto runner = load_for_adapters(goldens_folder() / "llama_gqa", {.exact = true, .context = 64, .rows = 64});
  Adapters& adapters = runner->rank().adapters();
  const auto expected = [&] {
    Engine engine(*runner);
    return generate(engine, {request_of(add(*runner, "one", loras_folder() / "llama"))});
  }();
  Engine engine(*runner);
  std::vector<int32_t> tokens;
  engine.submit(request_of(adapters.find("one")));
  while (engine.step([&](const Emission& e) {
    if (e.token >= 0) tokens.push_back(e.token);
    if (tokens.size() == 3) adapters.remove("one");
  })) {
  }
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ(adapters.find("one"), nullptr);
  // Another adapter under the same name takes neither its pages nor its answers.
  std::vector<int32_t> cached;
  const auto other = generate(engine, {request_of(add(*runner, "one", loras_folder() / "llama_patterns"))}, &cached);
  EXPECT_NE(other, expected);
  EXPECT_EQ(cached, std::vector<int32_t>{0});
  const int64_t with = adapters.version();
  adapters.remove("one");
  adapters.free_unused();
  EXPECT_NE(adapters.version(), with) << "no layer has adapters any more";
}

TEST(LoraEngine, TheServiceLoadsBetweenSteps) {
  auto runner = load_for_adapters(goldens_folder() / "qwen3", {.exact = true, .context = 64, .rows = 64});
  Service service(*runner, {});
  service.load_adapter("q", loras_folder() / "qwen3");
  EXPECT_THROW(service.load_adapter("bad", loras_folder() / "llama"), Error);
  ASSERT_NE(service.find_adapter("q"), nullptr);
  EXPECT_EQ(service.adapters().size(), 1u);
  EXPECT_TRUE(service.unload_adapter("q"));
  EXPECT_FALSE(service.unload_adapter("q"));
}

// Fast kernels pack the experts in other layouts, and read them in a mapped file where they lie.
TEST(LoraEngine, FastAndMappedExpertsAreAdapted) {
  for (const auto& [golden, lora] : {std::pair("qwen3_moe", "qwen3_moe_experts"),
                                     {"gpt_oss", "gpt_oss"},
                                     {"mixtral", "mixtral_each"},
                                     {"nemotron_h_moe", "nemotron_h_moe"}}) {
    const ExpectedRows expected = read_rows(loras_folder() / lora);
    const auto length = static_cast<int32_t>(expected.tokens.size());
    for (const fs::path& model : {goldens_folder() / golden, goldens_folder() / golden / "model.gguf"}) {
      const bool reorders = std::string_view(golden) == "nemotron_h_moe" && model.extension() == ".gguf";
      if (reorders) continue;
      EXPECT_LE(error_of(model, loras_folder() / lora, expected, length, false), 0.02) << model;
      if (golden[0] != 'q' && golden[0] != 'm') continue;
      const auto whole =
          load_for_adapters(model, {.exact = true, .context = length, .rows = length, .logit_rows = length});
      const int64_t less = whole->memory().total() - 1;
      EXPECT_LE(error_of(model, loras_folder() / lora, expected, length, true, {}, less), 1e-4) << model << " mapped";
    }
  }
}

// Stacked experts of all layers, as PEFT writes them, whose B is zero.
void write_zeros(const fs::path& folder, int64_t layers, int64_t experts, int64_t hidden, int64_t width) {
  constexpr int64_t kRank = 3;
  nlohmann::json header;
  size_t end = 0;
  const auto add = [&](const std::string& name, int64_t rows, int64_t cols) {
    const size_t begin = std::exchange(end, end + size_t(rows * cols) * sizeof(float));
    header[name] = {{"dtype", "F32"}, {"shape", {rows, cols}}, {"data_offsets", {begin, end}}};
  };
  for (int64_t i = 0; i < layers; ++i) {
    const std::string module = fmt::format("base_model.model.model.layers.{}.mlp.experts.", i);
    add(module + "base_layer.lora_A.weight", experts * kRank, hidden);
    add(module + "base_layer.lora_B.weight", 2 * width, experts * kRank);
    add(module + "lora_A.weight", experts * kRank, width);
    add(module + "lora_B.weight", hidden, experts * kRank);
  }
  const std::string text = header.dump();
  const auto length = static_cast<uint64_t>(text.size());
  fs::create_directories(folder);
  std::ofstream file(folder / "adapter_model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof length) << text << std::string(end, '\0');
  std::ofstream(folder / "adapter_config.json") << R"({"r": 3, "lora_alpha": 3, "peft_version": "0.19.1",
             "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]})";
}

// Rows with an adapter get gate and up from the same packed matrices, without the fused activation.
TEST(LoraEngine, ZerosChangeNoQuantizedExperts) {
  const fs::path folder = fs::path(testing::TempDir()) / "millrace_zero_experts";
  write_zeros(folder, 2, 8, 256, 256);
  const std::vector<int32_t> tokens{3, 141, 59, 265, 358, 97, 93, 238, 46, 264, 338, 327};
  const auto length = static_cast<int32_t>(tokens.size());
  for (const char* format : {"f32", "bf16", "q4_0", "q8_0", "q4_k", "mxfp4"}) {
    const auto runner = load_for_adapters(fmt::format("synthetic:tiny-experts:{}", format),
                                          {.context = 64, .rows = length, .logit_rows = length});
    const int32_t slot = add(*runner, "zeros", folder)->slot;
    std::vector<std::vector<float>> logits;
    for (const int32_t adapter : {-1, slot}) {
      BlockTable table = runner->state().new_table(length);
      ASSERT_TRUE(table.reserve(length));
      StepBatch step(length, 1, length);
      step.add(tokens, 0, length, table.pages(), StepBatch::Logits::All, -1, adapter);
      const Matrix rows = runner->forward(step.batch());
      logits.emplace_back(rows.row<float>(0), rows.row<float>(0) + rows.rows * rows.cols);
    }
    double difference = 0, largest = 0;
    for (size_t i = 0; i < logits[0].size(); ++i) {
      difference = std::max(difference, std::abs(double(logits[0][i]) - logits[1][i]));
      largest = std::max(largest, std::abs(double(logits[0][i])));
    }
    EXPECT_LE(difference, 1e-4 * largest) << format;
  }
  fs::remove_all(folder);
}

// Kernels of quantized weights compute silu(gate) * up themselves; adapters change gate and up before that.
TEST(LoraEngine, GatedLayersAreAdaptedBeforeTheGate) {
  const fs::path file = fs::path(testing::TempDir()) / "millrace_lora_q8.gguf";
  ThreadPool pool(2);
  const auto source = open_weights((goldens_folder() / "llama_gqa" / "model.gguf").string());
  quantize_model(*source, file, *find_recipe("Q8_0"), pool, [](int64_t, int64_t) {});
  const auto runner = load_for_adapters(file, {.context = 64});
  const auto linears = runner->ops().linears();
  EXPECT_TRUE(std::any_of(linears.begin(), linears.end(), [](const Linear* l) { return l->gated; }));
  const ExpectedRows expected = read_rows(loras_folder() / "llama");
  const auto length = static_cast<int32_t>(expected.tokens.size());
  const fs::path adapter = loras_folder() / "llama";
  // A forced activation is never fused.
  const double apart = error_of(file, adapter, expected, length, false, {{"activation", "reference"}});
  EXPECT_LE(apart, 0.15) << "the rounding of Q8_0; without the adapter it is above 1";
  for (const int32_t chunk : {length, 1})
    EXPECT_NEAR(error_of(file, adapter, expected, chunk, false), apart, 0.01) << "chunks of " << chunk;
  fs::remove(file);
}

// One line that names the problem.
class HostileLora : public testing::Test {
 protected:
  HostileLora() : folder_(fs::path(testing::TempDir()) / "millrace_hostile_lora") {
    fs::remove_all(folder_);
    fs::copy(loras_folder() / "llama", folder_);
    std::ifstream file(folder_ / "adapter_config.json");
    config_ = nlohmann::json::parse(file);
    runner_ = load_for_adapters(goldens_folder() / "llama_gqa", {.exact = true, .context = 64, .rows = 64});
  }
  ~HostileLora() override { fs::remove_all(folder_); }

  std::string problem(const std::string& config) {
    std::ofstream(folder_ / "adapter_config.json") << config;
    try {
      runner_->rank().read_adapter(folder_);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
  }
  std::string with(const std::string& key, const nlohmann::json& value) {
    nlohmann::json config = config_;
    config[key] = value;
    return problem(config.dump());
  }

  fs::path folder_;
  nlohmann::json config_;
  std::unique_ptr<Runner> runner_;
};

TEST_F(HostileLora, ConfigsAreRefusedByName) {
  using testing::HasSubstr;
  EXPECT_EQ(problem(config_.dump()), "");
  EXPECT_THAT(with("use_dora", true), HasSubstr("use_dora"));
  EXPECT_THAT(with("bias", "all"), HasSubstr("bias"));
  EXPECT_THAT(with("modules_to_save", {"lm_head"}), HasSubstr("modules_to_save"));
  EXPECT_THAT(with("trainable_token_indices", {1, 2}), HasSubstr("trainable_token_indices"));
  EXPECT_THAT(with("peft_type", "IA3"), HasSubstr("IA3"));
  EXPECT_THAT(with("init_lora_weights", "pissa_niter_4"), HasSubstr("pissa_niter_4"));
  EXPECT_EQ(with("init_lora_weights", "gaussian"), "");
  EXPECT_THAT(with("lora_alpha", 1e300), HasSubstr("not finite"));
  EXPECT_THAT(with("r", 100000), HasSubstr("rank"));
  EXPECT_THAT(with("r", 3), HasSubstr("rank"));
  EXPECT_THAT(with("r", "many"), HasSubstr("r is missing or not a number"));
  EXPECT_THAT(with("lora_alpha", nullptr), HasSubstr("lora_alpha"));
  EXPECT_THAT(with("rank_pattern", {{"(", 4}}), HasSubstr("a pattern of a rank or alpha: the regex"));
  EXPECT_THAT(with("rank_pattern", 4), HasSubstr("rank_pattern"));
  EXPECT_NE(problem(R"({"r": NaN, "lora_alpha": 1})"), "");
  EXPECT_NE(problem("[1"), "");
  EXPECT_NE(problem("[]"), "");
}

TEST_F(HostileLora, WeightsAreCheckedAgainstTheModel) {
  using testing::HasSubstr;
  const fs::path weights = folder_ / "adapter_model.safetensors";
  const auto swap = [&](const fs::path& from) { fs::copy_file(from, weights, fs::copy_options::overwrite_existing); };
  std::ifstream file(weights, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(file)), {});
  const auto change = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    const auto at = bytes.find(from);
    ASSERT_NE(at, std::string::npos);
    ASSERT_EQ(from.size(), to.size());
    std::ofstream(weights, std::ios::binary) << bytes.replace(at, from.size(), to);
  };
  change("layers.0.self_attn.q_proj.lora_A", "layers.7.self_attn.q_proj.lora_A");
  EXPECT_THAT(problem(config_.dump()), HasSubstr("only one of its two matrices"));
  change("mlp.up_proj.lora_A.weight", "mlp.up_proj.lora_X.weight");
  EXPECT_THAT(problem(config_.dump()), HasSubstr("lora_X"));
  std::string bytes = good;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + bytes.size() - sizeof nan, &nan, sizeof nan);
  std::ofstream(weights, std::ios::binary) << bytes;
  EXPECT_THAT(problem(config_.dump()), HasSubstr("not finite"));
  swap(loras_folder() / "qwen3" / "adapter_model.safetensors");
  EXPECT_THAT(problem(config_.dump()), HasSubstr("rank"));
  EXPECT_THAT(with("r", 16), HasSubstr("the model has"));
  std::ofstream(weights, std::ios::binary) << good.substr(0, good.size() / 2);
  EXPECT_NE(problem(config_.dump()), "");
  fs::remove(weights);
  EXPECT_THAT(problem(config_.dump()), HasSubstr("adapter_model.safetensors"));
}

// Adapters of experts, with one thing changed.
class HostileExperts : public testing::Test {
 protected:
  HostileExperts() : folder_(fs::path(testing::TempDir()) / "millrace_hostile_experts") {
    runner_ = load_for_adapters(goldens_folder() / "qwen3_moe", {.exact = true, .context = 64, .rows = 64});
  }
  ~HostileExperts() override { fs::remove_all(folder_); }

  std::string problem(const fs::path& path) {
    try {
      runner_->rank().read_adapter(path);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
  }
  // Every `from` in a file of the adapter becomes `to`, of the same length.
  std::string changed(const std::string& lora, const char* file, const std::string& from, const std::string& to) {
    fs::remove_all(folder_);
    fs::copy(loras_folder() / lora, folder_);
    std::ifstream in(folder_ / file, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    in.close();
    EXPECT_NE(bytes.find(from), std::string::npos);
    for (size_t at = 0; (at = bytes.find(from, at)) != bytes.npos; at += to.size()) bytes.replace(at, from.size(), to);
    std::ofstream(folder_ / file, std::ios::binary) << bytes;
    return problem(std::string(file).ends_with(".gguf") ? folder_ / file : folder_);
  }

  fs::path folder_;
  std::unique_ptr<Runner> runner_;
};

TEST_F(HostileExperts, StacksAreCheckedAgainstTheModel) {
  using testing::HasSubstr;
  const auto config = [&](const std::string& from, const std::string& to) {
    return changed("qwen3_moe_experts", "adapter_config.json", from, to);
  };
  EXPECT_EQ(config("\"r\"", "\"r\""), "");
  EXPECT_THAT(config("\"target_parameters\"", "\"target_whatever__\""),
              HasSubstr("target_parameters names no parameter"));
  EXPECT_THAT(config("\"mlp.experts.down_proj\"", "\"mlp.experts.doom_proj\""), HasSubstr("target_parameters names"));
  EXPECT_THAT(config("\"mlp.experts.down_proj\"", "17"), HasSubstr("no list of names"));
  EXPECT_THAT(config("\"r\": 3", "\"r\": 4"), HasSubstr("rank 18"));
  EXPECT_THAT(config("\"r\": 3", "\"r\": 9"), testing::Not(""));
  EXPECT_THAT(config("\"rank_pattern\": {}", "\"rank_pattern\": {\"experts.gate_up_proj\": 9}"),
              HasSubstr("for 2 experts, the model has 6"));
  runner_ = load_for_adapters(goldens_folder() / "gemma4_experts", {.exact = true, .context = 64, .rows = 64});
  EXPECT_THAT(changed("gemma4_experts", "adapter_config.json", "0.21.2", "0.19.0"), HasSubstr("square"));
  EXPECT_THAT(changed("gemma4_experts", "adapter_config.json", "peft_version", "soft_version"), HasSubstr("square"));
  EXPECT_EQ(changed("gemma4_experts", "adapter_config.json", "0.21.2", "0.19.1"), "");
  runner_ = load_for_adapters(goldens_folder() / "qwen3_moe", {.exact = true, .context = 64, .rows = 64});
  const auto gguf = [&](const std::string& from, const std::string& to) {
    return changed("qwen3_moe_experts", "adapter.gguf", from, to);
  };
  EXPECT_EQ(gguf("blk.0", "blk.0"), "");
  EXPECT_THAT(gguf("blk.1.ffn_up_exps", "blk.9.ffn_up_exps"), HasSubstr("blk.9.ffn_up_exps"));
  EXPECT_THAT(gguf("blk.0.ffn_up_exps", "blk.0.ffn_up_blub"), HasSubstr("has the shape"));
  EXPECT_THAT(gguf("blk.0.ffn_up_exps.weight.lora_a", "blk.0.ffn_up_exps.weight.lora_x"), HasSubstr("lora_x"));
  EXPECT_THAT(problem(loras_folder() / "olmoe_patterns"), HasSubstr("the model has"));
  EXPECT_THAT(problem(loras_folder() / "mixtral_each" / "adapter.gguf"), HasSubstr("for 5 experts, the model has 6"));
}

// Steps hand whole experts over to the CPU there, which knows no adapters.
TEST_F(HostileExperts, ExpertsInHostMemoryTakeNone) {
  LoadOptions options{.exact = true, .context = 64, .rows = 64};
  options.cpu_as_card = true;
  options.gpu_memory = runner_->memory().total() - (10 << 10);
  runner_ = load_for_adapters(goldens_folder() / "qwen3_moe", options);
  EXPECT_THAT(problem(loras_folder() / "qwen3_moe_experts"), testing::HasSubstr("lie in host memory"));
  EXPECT_EQ(problem(loras_folder() / "qwen3_moe"), "");
}

TEST_F(HostileExperts, SingleExpertsAreCheckedAgainstTheModel) {
  using testing::HasSubstr;
  const auto tensors = [&](const std::string& from, const std::string& to) {
    return changed("qwen3_moe_some", "adapter_model.safetensors", from, to);
  };
  EXPECT_EQ(tensors("experts.5", "experts.4"), "");
  EXPECT_THAT(tensors("experts.5.", "experts.9."), HasSubstr("of expert 9, the model has 6"));
  EXPECT_THAT(tensors("experts.5.", "experts.x."), HasSubstr("no linear layer"));
  EXPECT_THAT(tensors("experts.5.gate_proj.lora_A", "experts.4.gate_proj.lora_A"), HasSubstr("only one of its two"));
  EXPECT_THAT(tensors("experts.5.gate_proj", "experts.5.what_proj"), HasSubstr("what_proj"));
  EXPECT_THAT(tensors("experts.5.gate_proj", "experts.5.down_proj"), testing::Not(""));
  EXPECT_THAT(changed("qwen3_moe_some", "adapter_config.json", "\"r\": 3", "\"r\": 5"), HasSubstr("rank"));
  EXPECT_THAT(problem(loras_folder() / "mixtral_each"), HasSubstr("the model has"));
}

TEST(LoraArchitecture, OfAGgufAdapterIsTheModels) {
  const auto runner = load_for_adapters(goldens_folder() / "llama_gqa" / "model.gguf", {.context = 64, .rows = 64});
  EXPECT_NO_THROW(runner->rank().read_adapter(loras_folder() / "llama" / "adapter.gguf"));
  try {
    runner->rank().read_adapter(loras_folder() / "qwen3" / "adapter.gguf");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("architecture 'qwen3'"));
  }
}

TEST_F(HostileLora, AModelIsNoAdapter) {
  EXPECT_THROW(runner_->rank().read_adapter(goldens_folder() / "llama_gqa" / "model.gguf"), Error);
  EXPECT_THROW(runner_->rank().read_adapter(goldens_folder() / "llama_gqa"), Error);
  EXPECT_THROW(runner_->rank().read_adapter("/nowhere"), Error);
  auto plain = load((goldens_folder() / "llama_gqa").string(), {.threads = 1, .context = 64});
  EXPECT_THROW(plain->rank().read_adapter(loras_folder() / "llama"), Error) << "loaded without adapters";
}

}  // namespace
}  // namespace millrace
