// cuDNN's attention alone: makes sure that the library computes, not the fallback.
#include "hardware/cuda/cudnn.h"
#include "base/thread_pool.h"
#include "cuda/attention_batch.h"

namespace millrace {
namespace {

TEST(Cudnn, ComputesWholeChunks) {
  if (!CudnnAttention::available()) GTEST_SKIP() << "cuDNN is not installed";
  CudnnAttention library;
  for (const AttentionCase& c : {AttentionCase{"start", DType::BF16, 32, 8, 128, 64, 0, 0, {{0, 1024}}},
                                 AttentionCase{"later", DType::F16, 8, 8, 64, 32, 0, 0, {{1024, 512}}},
                                 AttentionCase{"96", DType::BF16, 6, 2, 96, 16, 0, 0, {{512, 512}}},
                                 AttentionCase{"pages in part", DType::BF16, 8, 2, 128, 64, 0, 0, {{100, 512}}}}) {
    Random random;
    SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
    AttentionBatch batch(c, random,
                         std::byte{0});  // zeros, since 9.19 multiplies slots without a token by weights of zero
    round_to(batch.q(), c.kv);
    ThreadPool pool(2);
    TestMatrix expected(batch.rows(), batch.width()), out(batch.rows(), batch.width());
    AttentionOp::reference()->run(batch.args(expected), {&pool, nullptr});
    const GpuBatch on_device(batch, out, c.kv);
    const AttentionArgs& a = on_device.args();
    const GpuBytes log_sums(static_cast<size_t>(c.heads) * static_cast<size_t>(batch.rows()) * sizeof(float));
    const GpuBytes workspace(CudnnAttention::kWorkspaceBytes);
    const CudnnAttentionProblem problem{
        c.kv,         c.heads,    c.kv_heads,   c.head_dim, c.block_size, a.kv.pages, a.tables.page_stride,
        batch.rows(), a.q.stride, a.out.stride, a.scale};
    const CudnnAttentionArgs args{a.q.data,
                                  a.kv.keys,
                                  a.kv.values,
                                  a.tables.pages,
                                  &a.tables.slices->rows,
                                  &a.tables.slices->length,
                                  a.out.data,
                                  log_sums.as<float>(),
                                  workspace.data()};
    ASSERT_TRUE(library.run(problem, args, static_cast<cudaStream_t>(gpu().queue())));
    EXPECT_LT(on_device.read(out).distance(expected), 8 * (1e-6 + 2 * rounding_of(c.kv)));
  }
}

}  // namespace
}  // namespace millrace
