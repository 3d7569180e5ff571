// Materialised latent attention on the GPU against plain loops in double, in one piece and in many.
#include "base/thread_pool.h"
#include "cuda/attention_batch.h"
#include "kernels/latent_prompt/cuda/materialised.h"
#include "kernels/latent_prompt_cases.h"

namespace millrace {
namespace {

// A matrix for each head in GPU memory.
class GpuHeads {
 public:
  GpuHeads(const TestExperts& heads, DType format, int count, int64_t n, int64_t k, const LinearLayout& layout,
           ThreadPool& pool)
      : stride_((layout.bytes(format, n, k) + 63) / 64 * 64), bytes_(stride_ * static_cast<size_t>(count)) {
    for (int i = 0; i < count; ++i) {
      std::byte* to = bytes_.data() + static_cast<size_t>(i) * stride_;
      const WeightView head = heads.file_view(i);
      layout.upload({&head, 1}, to, gpu_uploader(), pool);
      data_.push_back(to);
    }
    weights_ = {format, count, n, k, &layout, data_, stride_};
  }
  const GroupedWeights& weights() const { return weights_; }

 private:
  size_t stride_;
  GpuBytes bytes_;
  std::vector<const std::byte*> data_;
  GroupedWeights weights_;
};

// How a chunk is cut: as usual, into pieces of 128 and of 256 positions, by heads, and by both.
std::vector<LatentCut::Limits> cuts() {
  return {{}, {.positions = 128}, {.positions = 256}, {.heads = 2}, {.heads = 1, .positions = 128}};
}

// Queries, keys, values, weights and outputs each round once, to the coarsest of the types.
double tolerance(const PromptCase& c, DType activations) {
  const bool rounds_to_bf16 = c.kv == DType::BF16 || is_quantized(c.weights);
  return 2 * (1 + c.spread()) * (rounding_of(activations) + rounding_of(rounds_to_bf16 ? DType::BF16 : DType::F16));
}

// Runs twice over one workspace, poisoned and then used, with a guard behind it: both must give the same bits.
TestMatrix run(const CudaMaterialised& kernel, PromptBatch& batch, const GpuHeads& keys, const GpuHeads& values,
               DType activations) {
  constexpr size_t kGuard = 256;
  const size_t bytes = kernel.workspace_bytes(batch.problem().bucketed(), gpu().hardware());
  const GpuBytes workspace(std::vector<std::byte>(bytes + kGuard, std::byte{0xff}));
  const GpuCopy plain(batch.plain(), activations);
  TestMatrix out = batch.fresh_out(), again = out;
  for (TestMatrix* result : {&out, &again}) {
    GpuBatch on_device(batch.attention(), *result, activations);
    on_device.skip(1);
    kernel.run(batch.args(on_device.args(), plain.view(), keys.weights(), values.weights()), on_gpu(workspace.data()));
    *result = on_device.read(*result);
  }
  EXPECT_TRUE(out.same_bits(again));
  std::vector<std::byte> guard(kGuard);
  gpu().memory().read(guard.data(), workspace.data() + bytes, kGuard);
  EXPECT_EQ(guard, std::vector<std::byte>(kGuard, std::byte{0xff})) << "beyond the workspace";
  for (int64_t row = 0; row < batch.first_row(); ++row) EXPECT_TRUE(std::isnan(out.at(row, 0))) << "a row of others";
  return out;
}

int check(const PromptCase& c, DType activations) {
  Random random;
  SCOPED_TRACE(c.name + " " + std::string(name(activations)) + " seed " + std::to_string(random.seed()));
  PromptBatch batch(c, random, 8, {70, 3});
  round_to(batch.attention().q(), activations);
  round_to(batch.plain(), activations);
  TestMatrix expected = batch.expected();
  ThreadPool pool(8);
  int ran = 0;
  for (const LinearLayout* layout : cuda_kernels().layouts) {
    if (!layout->accepts(c.weights, c.latent, c.plain, gpu().hardware())) continue;
    const GpuHeads keys(batch.keys(), c.weights, c.heads, c.latent, c.plain, *layout, pool);
    const GpuHeads values(batch.values(), c.weights, c.heads, c.value, c.latent, *layout, pool);
    for (const LatentCut::Limits& limits : cuts()) {
      const CudaMaterialised kernel(limits);
      if (!kernel.can_run(batch.problem(), gpu().hardware())) continue;
      EXPECT_GT(kernel.estimate_us(batch.problem(), gpu().hardware()), 0);
      TestMatrix out = run(kernel, batch, keys, values, activations);
      EXPECT_LT(out.distance(expected, batch.first_row(), c.slice.rows), tolerance(c, activations))
          << layout->name() << " heads " << limits.heads << " positions " << limits.positions;
      ++ran;
    }
  }
  return ran;
}

bool has_hopper() { return gpu().hardware().architecture == 90; }

TEST(CudaLatentPrompt, MatchesPlainLoops) {
  if (!has_hopper()) GTEST_SKIP() << "for Hopper only";
  int others = 0;
  for (const PromptCase& c : gpu_prompt_cases()) {
    EXPECT_GT(check(c, DType::BF16), 0) << c.name;
    EXPECT_GT(check(c, others++ % 2 == 0 ? DType::F16 : DType::F32), 0) << c.name;
  }
}

// The workspace of a long context is bounded, and a short one takes no more than it needs.
TEST(CudaLatentPrompt, WorkspacesAreBounded) {
  const LatentCut::Limits limits;
  for (const int heads : {1, 16, 40, 128}) {
    for (const int64_t rows : {1, 512, 2048, 8192}) {
      for (int64_t context = rows; context <= int64_t{1} << 20; context *= 2) {
        const LatentPromptOp::Problem p{DType::BF16, Precision::Fast, heads, 128, 64, 128, 512, 64, rows, context};
        SCOPED_TRACE(to_string(p));
        const LatentCut cut(p, 132, limits);
        EXPECT_EQ(cut.positions % kExpandedTile, 0);
        EXPECT_LE(cut.positions, std::max<int64_t>(limits.positions, kExpandedTile));
        EXPECT_LT(cut.positions, context + kExpandedTile);
        EXPECT_LE(cut.heads, std::min<int64_t>(heads, limits.heads));
        EXPECT_LE(cut.positions * (cut.heads * cut.head_columns + cut.row_columns) * 2, int64_t(limits.bytes));
        const int64_t sums = cut.positions < context ? cut.heads * rows * (128 + 2) * 4 * 2 : 0;
        EXPECT_LE(int64_t(cut.bytes), int64_t(limits.bytes) + sums + (int64_t{56} << 20));
      }
    }
  }
}

// Shapes that do not fit are left to the absorbed form, which runs everything.
TEST(CudaLatentPrompt, OtherShapesAreAbsorbed) {
  const LatentPromptOp::Problem usual{DType::BF16, Precision::Fast, 16, 128, 64, 128, 512, 64, 512, 512};
  const auto candidates = [](const LatentPromptOp::Problem& p) {
    int count = 0;
    for (const auto* kernel : LatentPromptOp::cuda()) count += kernel->can_run(p, gpu().hardware()) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(candidates(usual), has_hopper() ? 2 : 1);
  std::vector<LatentPromptOp::Problem> others(7, usual);
  others[0].kv = DType::F32;
  others[1].precision = Precision::Exact;
  others[2].plain_dim = 200;
  others[3].plain_dim = 124;
  others[4].rotary_dim = 128;
  others[5].value_dim = 264;
  others[6].latent_dim = 508;
  for (const auto& problem : others) EXPECT_EQ(candidates(problem), 1) << to_string(problem);
}

// With the sizes of DeepSeek V2 Lite.
TEST(CudaLatentPrompt, EstimatesPreferItForLongChunksOnly) {
  if (!has_hopper()) GTEST_SKIP() << "for Hopper only";
  const Hardware& hardware = gpu().hardware();
  const auto prefers = [&](int64_t rows, int64_t context) {
    const LatentPromptOp::Problem p{DType::BF16, Precision::Fast, 16, 128, 64, 128, 512, 64, rows, context};
    return LatentPromptOp::cuda().front()->estimate_us(p, hardware) <
           LatentPromptOp::cuda().back()->estimate_us(p, hardware);
  };
  for (const int64_t context : {4096, 65536}) {
    EXPECT_TRUE(prefers(2048, context)) << context;
    EXPECT_FALSE(prefers(2, context)) << context;
    EXPECT_FALSE(prefers(16, context)) << context;
  }
}

}  // namespace
}  // namespace millrace
