// Whole models on a GPU: every golden under --exact against Hugging Face, the fast path against the CPU, and decoding
// step by step (recorded and replayed) against the same tokens in one chunk.
#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "models/golden.h"

namespace millrace {
namespace {

// Relative to the largest logit. Random weights amplify roundings; other tests compare the text of real models.
constexpr double kFastNear = 0.15;

constexpr const char* kOddLatentHeads = "deepseek_v3_halves";

class CudaGoldenTest : public testing::TestWithParam<Golden> {
  void SetUp() override {
    if (GetParam().name == kOddLatentHeads) GTEST_SKIP() << "refused on a GPU";
  }
};

LoadOptions options(int64_t length, bool exact) {
  return {.device = DeviceChoice::Cuda,
          .threads = 2,
          .exact = exact,
          .context = length,
          .rows = length,
          .logit_rows = length,
          .block_size = 16};
}

double relative_error(const std::vector<std::vector<float>>& got, const std::vector<std::vector<float>>& want) {
  double largest = 0, error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t j = 0; j < want[i].size(); ++j) {
      if (!std::isfinite(got[i][j])) return 1e30;
      largest = std::max<double>(largest, std::abs(want[i][j]));
      error = std::max<double>(error, std::abs(got[i][j] - want[i][j]));
    }
  }
  return error / largest;
}

// The same for each row by itself; the median of the rows. In a mixture, rounding moves some rows to other experts, and
// their logits with them.
double median_row_error(const std::vector<std::vector<float>>& got, const std::vector<std::vector<float>>& want) {
  std::vector<double> errors;
  for (size_t i = 0; i < want.size(); ++i) errors.push_back(relative_error({got[i]}, {want[i]}));
  std::nth_element(errors.begin(), errors.begin() + std::ssize(errors) / 2, errors.end());
  return errors[errors.size() / 2];
}

std::vector<std::string> files_of(const Golden& golden) {
  std::vector<std::string> files{golden.folder.string()};
  if (golden.has_gguf) files.push_back((golden.folder / "model.gguf").string());
  return files;
}

TEST_P(CudaGoldenTest, ExactEqualsHuggingFace) {
  const Golden& golden = GetParam();
  const Expected expected = read_expected(golden);
  const auto length = static_cast<int64_t>(expected.tokens.size());
  for (const auto& file : files_of(golden)) {
    auto runner = load(file, options(length, true));
    const auto rows = all_logits(*runner, expected.tokens, static_cast<int32_t>(length));
    const size_t vocab = rows.front().size();
    std::vector<std::vector<float>> got, want;
    for (size_t i = 0; i < expected.rows.size(); ++i) {
      got.push_back(rows[static_cast<size_t>(expected.rows[i])]);
      want.emplace_back(expected.logits.begin() + static_cast<int64_t>(i * vocab),
                        expected.logits.begin() + static_cast<int64_t>((i + 1) * vocab));
    }
    EXPECT_LE(relative_error(got, want), golden.tolerance) << file;
  }
}

TEST_P(CudaGoldenTest, GreedyTextEqualsHuggingFace) {
  const Golden& golden = GetParam();
  const Expected expected = read_expected(golden);
  auto load_options = options(static_cast<int64_t>(expected.tokens.size() + expected.greedy.size()), true);
  load_options.logit_rows = 1;
  auto runner = load(golden.folder.string(), load_options);
  Engine engine(*runner);
  engine.submit({expected.tokens, {.temperature = 0}, static_cast<int32_t>(expected.greedy.size())});
  std::vector<int32_t> generated;
  while (engine.step([&](const Emission& e) { generated.push_back(e.token); })) {
  }
  EXPECT_EQ(generated, expected.greedy);
}

TEST_P(CudaGoldenTest, FastStaysNearTheCpu) {
  const Golden& golden = GetParam();
  const Expected expected = read_expected(golden);
  const auto length = static_cast<int64_t>(expected.tokens.size());
  for (const auto& file : files_of(golden)) {
    LoadOptions cpu = options(length, true);
    cpu.device = DeviceChoice::Cpu;
    auto exact = load(file, cpu);
    auto fast = load(file, options(length, false));
    const auto want = all_logits(*exact, expected.tokens, static_cast<int32_t>(length));
    const auto got = all_logits(*fast, expected.tokens, static_cast<int32_t>(length));
    const bool mixture = !fast->ops().groupeds().empty();
    EXPECT_LE(mixture ? median_row_error(got, want) : relative_error(got, want), kFastNear) << file;
  }
}

TEST_P(CudaGoldenTest, ReplayedStepsGiveTheSameLogits) {
  const Golden& golden = GetParam();
  const Expected expected = read_expected(golden);
  const auto length = static_cast<int64_t>(expected.tokens.size());
  auto runner = load(golden.folder.string(), options(length, true));
  const auto whole = all_logits(*runner, expected.tokens, static_cast<int32_t>(length));
  EXPECT_LE(relative_error(all_logits(*runner, expected.tokens, 1), whole), 2e-5);
  EXPECT_LE(relative_error(all_logits(*runner, expected.tokens, 7), whole), 2e-5);
}

// After the last layer's attention only rows with wanted logits are computed, by the kernels for few rows.
TEST_P(CudaGoldenTest, TheLastRowAloneGivesTheSameLogits) {
  const Golden& golden = GetParam();
  const Expected expected = read_expected(golden);
  const auto length = static_cast<int64_t>(expected.tokens.size());
  for (const bool exact : {true, false}) {
    auto runner = load(golden.folder.string(), options(length, exact));
    const auto whole = all_logits(*runner, expected.tokens, static_cast<int32_t>(length));
    BlockTable table = runner->state().new_table(static_cast<int32_t>(length));
    ASSERT_TRUE(table.reserve(static_cast<int32_t>(length)));
    const Slot slot = runner->state().new_slot();
    StepBatch step(length, 1, 1);
    step.add(expected.tokens, 0, static_cast<int32_t>(length), table.pages(), StepBatch::Logits::Last, slot.id());
    const Matrix logits = runner->forward(step.batch());
    ASSERT_EQ(logits.rows, 1);
    const std::vector<float> last(logits.row<float>(0), logits.row<float>(0) + logits.cols);
    EXPECT_LE(relative_error({last}, {whole.back()}), exact ? 2e-5 : kFastNear);
  }
}

// Heads whose rows a GPU cannot read in pieces of eight elements are refused by name.
TEST(CudaGoldens, OddLatentHeadsAreRefused) {
  const std::string folder = (goldens_folder() / kOddLatentHeads).string();
  try {
    load(folder, options(16, true));
    FAIL() << "not refused";
  } catch (const std::exception& e) {
    EXPECT_NE(std::string_view(e.what()).find("heads of such sizes on a GPU"), std::string_view::npos) << e.what();
  }
}

TEST(CudaGoldens, AreThere) { EXPECT_FALSE(all_goldens().empty()) << goldens_folder(); }

INSTANTIATE_TEST_SUITE_P(All, CudaGoldenTest, testing::ValuesIn(all_goldens()),
                         [](const auto& info) { return info.param.name; });

// Sequences of different lengths decode together: their steps are recorded once and replayed with other tables.
TEST(CudaEngine, BatchesGiveTheTextOfEachAlone) {
  const std::string model = (goldens_folder() / "llama_gqa").string();
  const auto generate = [&](int64_t sequences) {
    LoadOptions o = options(100, true);
    o.sequences = sequences;
    o.logit_rows = sequences;
    auto runner = load(model, o);
    Engine engine(*runner);
    std::map<RequestId, std::vector<int32_t>> texts;
    for (int32_t i = 0; i < 5; ++i) {
      std::vector<int32_t> prompt;
      for (int32_t t = 0; t < 3 + 11 * i; ++t) prompt.push_back((t * 7 + i) % 50);
      engine.submit({prompt, {.temperature = 0}, 20 + i});
    }
    while (engine.step([&](const Emission& e) { texts[e.id].push_back(e.token); })) {
    }
    return texts;
  };
  EXPECT_EQ(generate(1), generate(5));
}

TEST(CudaRunner, LikeliestTokensAreTheLogits) {
  auto runner = load((goldens_folder() / "llama_gqa").string(), options(40, true));
  BlockTable table = runner->state().new_table(40);
  ASSERT_TRUE(table.reserve(40));
  StepBatch step(40, 1, 40);
  std::vector<int32_t> tokens(40);
  for (int32_t i = 0; i < 40; ++i) tokens[static_cast<size_t>(i)] = i % 30;
  step.add(tokens, 0, 40, table.pages(), StepBatch::Logits::All);
  const auto best = runner->run(step.batch());
  const std::vector<int32_t> found(best.begin(), best.end());
  const Matrix logits = runner->logits();
  for (int64_t i = 0; i < logits.rows; ++i) {
    const float* row = logits.row<float>(i);
    EXPECT_EQ(found[static_cast<size_t>(i)], std::max_element(row, row + logits.cols) - row);
  }
}

// A step that fails during recording leaves a usable queue and no trace.
TEST(CudaDevice, ADroppedRecordingLeavesNothing) {
  auto runner = load((goldens_folder() / "llama_gqa").string(), options(40, true));
  Device& device = runner->ops().device();
  Arena arena("test", 1024, device.memory());
  std::byte* data = arena.take(1024);
  ASSERT_TRUE(device.begin_recording());
  device.clear(data, 1024);
  device.drop_recording();
  EXPECT_NO_THROW(device.finish());
  ASSERT_TRUE(device.begin_recording());
  device.clear(data, 1024);
  const auto recording = device.end_recording();
  ASSERT_NE(recording, nullptr);
  std::vector<std::byte> bytes(1024, std::byte{7});
  device.memory().write(data, bytes.data(), bytes.size());
  recording->replay();
  device.finish();
  device.memory().read(bytes.data(), data, bytes.size());
  EXPECT_EQ(bytes, std::vector<std::byte>(1024));
}

// An unrecoverable error, here keys written to a page that does not exist, is reported and remembered, so that a server
// can end.
TEST(CudaDeviceDeathTest, ALostDeviceIsKnown) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto lose = [] {
    auto runner = load((goldens_folder() / "llama_gqa").string(), options(40, true));
    StepBatch step(40, 1, 40);
    const int32_t token = 5, nowhere = 1 << 27;
    step.add({&token, 1}, 0, 1, {&nowhere, 1}, StepBatch::Logits::All);
    bool failed = false;
    try {
      runner->forward(step.batch());
    } catch (const Error&) {
      failed = true;
      runner->abandon();
    }
    std::_Exit(failed && runner->lost() ? 0 : 1);
  };
  EXPECT_EXIT(lose(), testing::ExitedWithCode(0), "");
}

// The goldens are small and mostly f32. This covers kernels of 16-bit and quantized weights at a model's shapes, with
// many rows and with one. bf16 activations through thirty layers lose some digits.
TEST(CudaSynthetic, FastStaysNearTheCpu) {
  std::vector<int32_t> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 977 % 40000);
  for (const char* format : {"bf16", "f16", "q8_0", "q4_0", "q4_k", "q6_k"}) {
    const std::string model = std::string("synthetic:smollm2-135m:") + format;
    LoadOptions cpu = options(40, true);
    cpu.device = DeviceChoice::Cpu;
    cpu.threads = 0;
    const auto want = all_logits(*load(model, cpu), tokens, 40);
    auto runner = load(model, options(40, false));
    for (const int32_t chunk : {40, 7, 1})
      EXPECT_LE(relative_error(all_logits(*runner, tokens, chunk), want), 0.15) << model << " in chunks of " << chunk;
  }
}

// A narrower KV cache loses no more on the GPU than on the CPU.
TEST(CudaKv, FormatsStayNearF32) {
  for (const char* name : {"llama_gqa", "gemma3", "qwen3"}) {
    const std::string model = (goldens_folder() / name).string();
    std::vector<int32_t> tokens(60);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 13 % 40);
    auto reference = load(model, options(60, true));
    const auto want = all_logits(*reference, tokens, 60);
    for (const auto& [dtype, tolerance] : std::vector<std::pair<DType, double>>{
             {DType::F16, 1e-2}, {DType::BF16, 1e-1}, {DType::Q8_0, 1e-1}, {kFp8, 0.5}}) {
      if (reference->model().config().head_dim % info(dtype).block != 0) continue;
      LoadOptions o = options(60, true);
      o.kv_type = dtype;
      auto runner = load(model, o);
      for (const int32_t chunk : {60, 1}) {
        const double error = relative_error(all_logits(*runner, tokens, chunk), want);
        EXPECT_LE(error, tolerance) << name << " " << millrace::name(dtype);
        EXPECT_GT(error, 0) << name << " " << millrace::name(dtype) << " cannot be lossless: was it used?";
      }
    }
  }
}

// A model that does not fit is refused before anything is computed, with one line.
TEST(CudaMemory, RefusesWhatDoesNotFit) {
  LoadOptions o = options(0, false);
  o.rows = 64, o.logit_rows = 64, o.context = 128;
  o.sequences = 1 << 23;
  o.rows = 1 << 23;
  try {
    load((goldens_folder() / "llama_gqa").string(), o);
    FAIL() << "a KV cache of 8 million sequences fitted";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::OutOfMemory) << e.what();
  }
}

// Weights beyond --gpu-memory stay in host memory, and the CPU computes their layers.
TEST(CudaMemory, WeightsInHostMemoryGiveTheSameLogits) {
  for (const char* name : {"glm4_moe", "gpt_oss", "llama_gqa"}) {
    const Golden golden{name, goldens_folder() / name};
    const std::vector<int32_t> tokens = read_expected(golden).tokens;
    LoadOptions o = options(std::ssize(tokens), true);
    const auto whole = load(golden.folder.string(), o);
    const auto want = all_logits(*whole, tokens, static_cast<int32_t>(tokens.size()));
    int64_t weights = 0;
    for (const auto& line : whole->memory().lines) weights += line.what.starts_with("packed weights") ? line.bytes : 0;
    o.gpu_memory = whole->memory().total() - weights / 2;
    for (const int64_t stream_rows : {int64_t{1} << 40, int64_t{8}, int64_t{1}}) {
      o.stream_rows = stream_rows;
      const auto split = load(golden.folder.string(), o);
      EXPECT_TRUE(split->rank().uses_host()) << name;
      EXPECT_LE(split->memory().total(), o.gpu_memory) << name;
      for (const int32_t chunk : {static_cast<int32_t>(tokens.size()), 1})
        EXPECT_LE(relative_error(all_logits(*split, tokens, chunk), want), 1e-4)
            << name << " " << chunk << " " << stream_rows;
    }
  }
}

// Texts of a few sequences that end at different steps.
std::map<RequestId, std::vector<int32_t>> generate(Runner& runner, int32_t first) {
  Engine engine(runner, {.prefix_cache = false});
  std::map<RequestId, std::vector<int32_t>> texts;
  for (int32_t i = 0; i < 4; ++i) engine.submit({{first, 2, 3 + i}, {.temperature = 0}, 20 + 10 * i});
  while (engine.step([&](const Emission& e) { texts[e.id].push_back(e.token); })) {
  }
  return texts;
}

// Takes all memory of the device that is free, down to pieces of 1 MiB.
std::vector<std::unique_ptr<Arena>> fill_memory(Device& device) {
  std::vector<std::unique_ptr<Arena>> hogs;
  for (size_t bytes = size_t{1} << 36; bytes >= size_t{1} << 20;) {
    try {
      hogs.push_back(std::make_unique<Arena>("test", bytes, device.memory()));
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::OutOfMemory) << e.what();
      bytes /= 2;
    }
  }
  return hogs;
}

// Steps with hand-overs are recorded in pieces. A full card only costs them the recording.
TEST(CudaMemory, RecordedStepsWithTheHostGiveTheSameTokens) {
  for (const char* name : {"glm4_moe", "gpt_oss", "llama_gqa"}) {
    const std::string model = (goldens_folder() / name).string();
    LoadOptions o = options(100, true);
    o.sequences = 4, o.logit_rows = 4;
    int64_t weights = 0;
    const auto whole = load(model, o);
    for (const auto& line : whole->memory().lines) weights += line.what.starts_with("packed weights") ? line.bytes : 0;
    const auto want = generate(*whole, 5);
    o.gpu_memory = whole->memory().total() - weights / 2;
    for (const bool split_experts : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", name, split_experts));
      o.split_experts = split_experts;
      const auto split = load(model, o);
      ASSERT_TRUE(split->rank().uses_host());
      EXPECT_EQ(generate(*split, 5), want);
      EXPECT_GT(split->recorded_steps(), 0u);
      EXPECT_EQ(generate(*split, 5), want);  // replays all of them
      const auto full = load(model, o);
      const auto hogs = fill_memory(full->ops().device());
      EXPECT_EQ(generate(*full, 5), want);
      EXPECT_EQ(generate(*split, 5), want);
    }
  }
}

// A running model keeps running when the GPU's memory is full, and a new one is refused with one line.
TEST(CudaMemory, AFullCardStopsNobodyWhoRuns) {
  const std::string model = (goldens_folder() / "llama_gqa").string();
  LoadOptions o = options(100, true);
  o.sequences = 4;
  o.logit_rows = 4;
  auto undisturbed = load(model, o);
  const auto expected = generate(*undisturbed, 5);
  undisturbed.reset();

  auto runner = load(model, o);
  auto hogs = fill_memory(runner->ops().device());
  EXPECT_EQ(generate(*runner, 5), expected);
  try {
    load(model, o);
    FAIL() << "a second model found room on a full card";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::OutOfMemory) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
  }
  EXPECT_EQ(generate(*runner, 5), expected);
  hogs.clear();
  EXPECT_EQ(generate(*load(model, o), 5), expected);
}

}  // namespace
}  // namespace millrace
