// The ops of latent attention.
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
      }
    }
  }
}

TEST(CudaHeadRouting, MatchesTheReference) {
  for (const auto [rows, heads] : {std::pair{1, 16}, {7, 3}, {300, 128}, {1, 1}}) {
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

TEST(CudaLatentAttention, EveryKernelMatchesTheReference) {
  for (const AttentionCase& c : uneven_attention_cases()) {
    if (!c.latent) continue;
    for (const DType activations : {DType::F32, DType::BF16, DType::F16}) {
      Random random;
      SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
      AttentionBatch batch(c, random);
      TestMatrix expected(batch.rows(), batch.out_width()), out(batch.rows(), batch.out_width());
      round_to(batch.q(), activations);
      ThreadPool pool(2);
      AttentionOp::reference()->run(batch.args(expected), {&pool, nullptr});
      int ran = 0;
      for (const AttentionKernel* kernel : cuda_kernels().of<AttentionOp>()) {
        const AttentionProblem problem = batch.problem();
        if (!kernel->can_run(problem.bucketed(), gpu().hardware())) continue;
        ++ran;
        GpuBatch on_device(batch, out, activations);
        EXPECT_LT(on_device.run(*kernel, problem.bucketed(), out).distance(expected), activations == DType::F32 ? 1e-5
                                                                                      : activations == DType::F16
                                                                                          ? 2e-3
                                                                                          : 1e-2)
            << kernel->name();
      }
      EXPECT_GT(ran, 0);
    }
  }
}

}  // namespace
}  // namespace millrace
