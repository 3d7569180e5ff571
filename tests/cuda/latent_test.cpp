// The ops of latent attention.
#include "base/thread_pool.h"
#include "cuda/attention_batch.h"
#include "kernels/kernel_set.h"
#include "kernels/latent_cases.h"

namespace millrace {
namespace {

double rounding_of_cache(DType kv) {
  return kv == DType::Q8_0 ? 2e-2 : kv == DType::BF16 ? 1e-2 : kv == DType::F16 ? 2e-3 : 1e-5;
}

TEST(CudaLatentWrite, MatchesTheReference) {
  constexpr std::byte kUntouched{0xa5};
  for (const LatentWriteOp::Problem& p : latent_write_cases()) {
    if (!is_kv_dtype(p.kv, p.latent_dim + p.rotary_dim)) continue;
    for (const DType activations : {DType::F32, DType::BF16}) {
      Random random;
      SCOPED_TRACE(to_string(p) + " seed " + std::to_string(random.seed()));
      LatentBatch batch(p, random);
      round_to(batch.row, activations);
      round_to(batch.q, activations);
      std::vector<std::byte> memory(batch.bytes(), kUntouched);
      const GpuBytes pages(memory);
      TestMatrix row = batch.row, q = batch.q, expected = batch.absorbed, out = batch.absorbed;
      LatentWriteOp::reference()->run(batch.args(row.view(), q.view(), expected.view(), memory.data()), {});
      std::vector<int32_t> slots;
      for (const SequenceSlice& slice : batch.slices) {
        for (int32_t i = 0; i < slice.rows; ++i) {
          const int32_t at = slice.past + i;
          slots.push_back(slice.pages[static_cast<size_t>(at / LatentBatch::kBlock)] * LatentBatch::kBlock +
                          at % LatentBatch::kBlock);
        }
      }
      std::vector<float> turns;
      for (int64_t i = 0; i < p.rows * p.rotary_dim; ++i)
        turns.push_back(batch.angles.at(i / p.rotary_dim, i % p.rotary_dim));
      const GpuBytes gpu_turns(turns), gpu_norm(batch.norm), gpu_slots(slots);
      const GpuCopy gpu_row(batch.row, activations), gpu_q(batch.q, activations), gpu_out(out, activations);
      LatentWriteOp::Args args = batch.args(gpu_row.view(), gpu_q.view(), gpu_out.view(), pages.data());
      args.norm = gpu_norm.as<float>();
      args.angles = {DType::F32, p.rows, p.rotary_dim, p.rotary_dim, gpu_turns.data()};
      args.tables.row_slots = gpu_slots.as<int32_t>();
      for (const Kernel<LatentWriteOp>* kernel : cuda_kernels().of<LatentWriteOp>()) {
        ASSERT_TRUE(kernel->can_run(p, gpu().hardware()));
        kernel->run(args, on_gpu());
        EXPECT_LT(page_distance(batch.kv, pages.read(), memory, kUntouched), rounding_of_cache(p.kv));
        gpu_out.read(out);
        EXPECT_LT(rotary_distance(p, out, expected), activations == DType::F32 ? 1e-5 : 5e-2);
        TestMatrix plain = batch.plain;
        const GpuCopy gpu_plain(plain, activations);
        args.plain = gpu_plain.view();
        kernel->run(args, on_gpu());
        gpu_plain.read(plain);
        EXPECT_TRUE(is_plain_part(batch, plain));
      }
    }
  }
}

TEST(CudaHeadRouting, MatchesTheReference) {
  for (const auto& [rows, heads] : {std::pair{1, 16}, {7, 3}, {300, 128}, {1, 1}}) {
    const std::vector<int32_t> none(static_cast<size_t>(rows * heads), -1), no_offsets(static_cast<size_t>(heads + 1));
    std::vector<int32_t> chosen = none, order = none, offsets = no_offsets;
    const GpuBytes gpu_chosen(none), gpu_order(none), gpu_offsets(no_offsets);
    Routing routing{.rows = rows * heads,
                    .groups = heads,
                    .chosen = chosen.data(),
                    .order = order.data(),
                    .offsets = offsets.data()};
    HeadRoutingOp::reference()->run({routing}, {});
    routing.chosen = gpu_chosen.as<int32_t>();
    routing.order = gpu_order.as<int32_t>();
    routing.offsets = gpu_offsets.as<int32_t>();
    cuda_kernels().of<HeadRoutingOp>().front()->run({routing}, on_gpu());
    const auto same = [](const GpuBytes& got, const std::vector<int32_t>& expected) {
      const auto bytes = got.read();
      return std::memcmp(bytes.data(), expected.data(), expected.size() * sizeof(int32_t)) == 0;
    };
    EXPECT_TRUE(same(gpu_chosen, chosen) && same(gpu_order, order) && same(gpu_offsets, offsets))
        << rows << ", " << heads;
  }
}

// Queries, weights and outputs each round once.
double tolerance(const AttentionCase& c, DType activations) {
  if (activations == DType::F32) return 1e-5;
  return 4 * std::max(1.0f, 2 * c.q_scale * c.k_scale) *
         (rounding_of(activations) + (c.kv == DType::BF16 ? 0x1p-8 : 0x1p-10));
}

// Every kernel that can run, and unified ones with maxima that fit and that do not. Returns how many ran.
int check(const AttentionCase& c, DType activations, bool invariant = false) {
  Random random;
  SCOPED_TRACE(c.name + " " + std::string(name(c.kv)) + " " + std::string(name(activations)) + " seed " +
               std::to_string(random.seed()));
  AttentionBatch batch(c, random);
  round_to(batch.q(), activations);
  TestMatrix expected(batch.rows(), batch.out_width()), out(batch.rows(), batch.out_width());
  ThreadPool pool(8);
  AttentionOp::reference()->run(batch.args(expected), {&pool, nullptr});
  AttentionProblem problem = batch.problem();
  problem.precision = activations == DType::F32 ? Precision::Exact : Precision::Fast;
  problem.invariant = invariant;
  int ran = 0;
  for (const AttentionKernel* kernel : cuda_kernels().of<AttentionOp>()) {
    problem.calibrated = false;
    const bool exact = kernel->can_run(problem.bucketed(), gpu().hardware());
    problem.calibrated = true;
    if (!exact && !kernel->can_run(problem.bucketed(), gpu().hardware())) continue;
    const std::vector<float> maxima = exact ? std::vector{0.0f} : std::vector{0.0f, 5.0f, -20.0f, 88.0f, -1e4f, 1e30f};
    for (const float phi : maxima) {
      GpuBatch on_device(batch, out, activations);
      if (!exact) on_device.set_phi(std::vector<float>(static_cast<size_t>(c.heads), phi));
      if (invariant) on_device.make_invariant();
      EXPECT_LT(on_device.run(*kernel, problem.bucketed(), out).distance(expected), tolerance(c, activations))
          << kernel->name() << " phi " << phi;
      ++ran;
    }
  }
  return ran;
}

AttentionCase deepseek(const std::string& name, int heads, std::vector<SliceCase> slices, DType kv = DType::BF16) {
  AttentionCase c{name, kv, heads, 1, 576, 64, 0, 0, std::move(slices)};
  c.own_value_dim = 512;
  c.latent = true;
  return c;
}

AttentionCase minicpm(const std::string& name, int heads, std::vector<SliceCase> slices) {
  AttentionCase c = deepseek(name, heads, std::move(slices), DType::F16);
  c.head_dim = 288;
  c.own_value_dim = 256;
  c.block_size = 16;
  return c;
}

TEST(CudaLatentAttention, EveryKernelMatchesTheReference) {
  for (const AttentionCase& c : uneven_attention_cases()) {
    if (!c.latent) continue;
    for (const DType activations : {DType::F32, DType::BF16, DType::F16}) EXPECT_GT(check(c, activations), 0) << c.name;
  }
}

TEST(CudaLatentAttention, SizesOfModels) {
  const std::vector<SliceCase> ragged{{0, 1}, {14, 1}, {15, 1}, {16, 1}, {2500, 1}, {63, 1}, {64, 1}, {300, 1}};
  std::vector<AttentionCase> cases{deepseek("long", 16, {{4095, 1}}),
                                   deepseek("ragged", 16, ragged),
                                   deepseek("one_head", 1, ragged),
                                   deepseek("five_heads", 5, ragged, DType::F16),
                                   deepseek("many_heads", 128, {{0, 1}, {700, 1}, {15, 1}}),
                                   deepseek("sequences", 16, std::vector<SliceCase>(70, {90, 1})),
                                   deepseek("drafts", 16, {{1000, 4}, {0, 1}, {30, 3}, {15, 2}}),
                                   deepseek("odd_drafts", 20, {{100, 3}, {13, 5}}, DType::F16),
                                   deepseek("prompt", 16, {{0, 40}, {77, 20}}),
                                   deepseek("tiles_of_their_own", 128, {{30, 70}, {0, 5}}),
                                   minicpm("minicpm_ragged", 40, ragged),
                                   minicpm("minicpm_prompt", 40, {{5, 40}})};
  for (const int context : {1, 15, 16, 17, 33}) cases.push_back(deepseek("short", 16, {{context - 1, 1}}));
  AttentionCase hard = deepseek("large_scores", 16, {{500, 1}, {20, 3}});
  hard.q_scale = hard.k_scale = 3;
  cases.push_back(hard);
  AttentionCase all = deepseek("softcap_and_sinks", 16, {{500, 1}, {20, 3}});
  all.softcap = 20;
  all.sinks = true;
  cases.push_back(all);
  for (const AttentionCase& c : cases) EXPECT_GT(check(c, c.kv), 2) << c.name;
  EXPECT_GT(check(deepseek("other_queries", 16, {{100, 1}}), DType::F16), 2);
}

// Clusters of every size and contexts around the edges of chunks, with sequences that end at different places.
TEST(CudaLatentAttention, DecodesOfManyContexts) {
  for (const int heads : {16, 128}) {
    for (const int sequences : {1, 3, 12, 20, 64}) {
      for (const int context : {1, 63, 64, 65, 1000, 1024, 1025, 2048, 4097}) {
        if (int64_t{heads} * sequences * context > 64 * 16 * 1025 ||
            (sequences > 3 && sequences < 64 && context > 1024))
          continue;
        std::vector<SliceCase> slices;
        for (int i = 0; i < sequences; ++i) slices.push_back({std::max(0, context - 1 - i % 5 * 13), 1});
        AttentionCase c = deepseek("decode", heads, slices, context % 3 == 0 ? DType::F16 : DType::BF16);
        c.block_size = context == 1000 ? 16 : context == 1025 ? 32 : 64;
        SCOPED_TRACE(testing::Message() << heads << " heads, " << sequences << " x " << context);
        EXPECT_GT(check(c, c.kv), 2);
      }
    }
  }
}

TEST(CudaLatentAttention, TheSameLaunchGivesTheSameBits) {
  Random random;
  SCOPED_TRACE("seed " + std::to_string(random.seed()));
  for (const int sequences : {1, 10, 64}) {
    const std::vector<SliceCase> slices(static_cast<size_t>(sequences), {1030, 1});
    AttentionBatch batch(deepseek("again", 16, slices), random);
    round_to(batch.q(), DType::BF16);
    const AttentionProblem problem = batch.problem().bucketed();
    for (const AttentionKernel* kernel : cuda_kernels().of<AttentionOp>()) {
      if (!kernel->can_run(problem, gpu().hardware())) continue;
      const auto result = [&] {
        TestMatrix out(batch.rows(), batch.out_width());
        return GpuBatch(batch, out, DType::BF16).run(*kernel, problem, out);
      };
      const TestMatrix first = result();
      for (int i = 0; i < 5; ++i) EXPECT_TRUE(result().same_bits(first)) << kernel->name() << ", " << sequences;
    }
  }
}

TEST(CudaLatentAttention, ARowDoesNotDependOnTheBatch) {
  const AttentionCase c = deepseek("invariant", 16, {{300, 1}, {20, 1}, {0, 33}});
  EXPECT_GT(check(c, DType::BF16, true), 1);
  Random random;
  SCOPED_TRACE("seed " + std::to_string(random.seed()));
  AttentionBatch batch(c, random);
  AttentionProblem problem = batch.problem();
  problem.invariant = true;
  for (const AttentionKernel* kernel : cuda_kernels().of<AttentionOp>()) {
    if (!kernel->can_run(problem.bucketed(), gpu().hardware())) continue;
    TestMatrix all(batch.rows(), batch.out_width()), last = all;
    GpuBatch whole(batch, all, DType::BF16), part(batch, last, DType::BF16);
    whole.make_invariant();
    part.make_invariant();
    part.skip(2);
    all = whole.run(*kernel, problem.bucketed(), all);
    last = part.run(*kernel, problem.bucketed(), last);
    for (int64_t row = 2; row < batch.rows(); ++row) {
      for (int64_t i = 0; i < batch.out_width(); ++i)
        ASSERT_EQ(all.at(row, i), last.at(row, i)) << kernel->name() << " row " << row;
    }
  }
}

}  // namespace
}  // namespace millrace
