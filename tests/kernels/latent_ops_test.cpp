// The ops of latent attention.
#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "kernels/kernel_set.h"
#include "latent_cases.h"

namespace millrace {
namespace {

double rounding_of(DType kv) {
  return kv == DType::Q8_0 ? 1e-2 : kv == DType::BF16 ? 8e-3 : kv == DType::F16 ? 1e-3 : 1e-5;
}

TEST(LatentWrite, MatchesTheReference) {
  constexpr std::byte kUntouched{0xa5};
  for (const LatentWriteOp::Problem& p : latent_write_cases()) {
    if (!is_kv_dtype(p.kv, p.latent_dim + p.rotary_dim)) continue;
    Random random;
    LatentBatch batch(p, random);
    const auto run = [&](const Kernel<LatentWriteOp>& kernel, const Executor& executor, TestMatrix& absorbed) {
      TestMatrix row = batch.row, q = batch.q;
      std::vector<std::byte> memory(batch.bytes(), kUntouched);
      LatentWriteOp::Args args = batch.args(row.view(), q.view(), absorbed.view(), memory.data());
      kernel.run(args, executor);
      TestMatrix plain = batch.plain;
      TestMatrix again = batch.row, queries = batch.q, ignored = batch.absorbed;
      args.row = again.view(), args.q = queries.view(), args.absorbed = ignored.view(), args.plain = plain.view();
      kernel.run(args, executor);
      EXPECT_TRUE(is_plain_part(batch, plain));
      return memory;
    };
    TestMatrix expected = batch.absorbed;
    const auto stored = run(*LatentWriteOp::reference(), {}, expected);
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      for (const Kernel<LatentWriteOp>* kernel : LatentWriteOp::cpu()) {
        SCOPED_TRACE(to_string(p) + " " + std::string(kernel->name()) + " seed " + std::to_string(random.seed()));
        ASSERT_TRUE(kernel->can_run(p, test_hardware()));
        TestMatrix absorbed = batch.absorbed;
        const auto memory = run(*kernel, {&pool, nullptr, nullptr, &test_hardware()}, absorbed);
        EXPECT_LT(page_distance(batch.kv, memory, stored, kUntouched), rounding_of(p.kv));
        EXPECT_LT(rotary_distance(p, absorbed, expected), 1e-5);
      }
    }
  }
}

// The values themselves, by plain loops: two rows, two heads.
TEST(LatentWrite, NormsRotatesAndPlaces) {
  Random random;
  const LatentWriteOp::Problem p{DType::F32, RopeStyle::Interleaved, 3, 2, 3, 4, 5};
  LatentBatch batch(p, random);
  TestMatrix row = batch.row, q = batch.q, absorbed = batch.absorbed;
  std::vector<std::byte> memory(batch.bytes());
  LatentWriteOp::reference()->run(batch.args(row.view(), q.view(), absorbed.view(), memory.data()), {});
  const float* stored = reinterpret_cast<const float*>(memory.data() + batch.kv.key_offset(batch.pages[0], 0, 3));
  double squares = 0;
  for (int i = 0; i < 5; ++i) squares += batch.row.at(0, i) * batch.row.at(0, i);
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(stored[i], batch.row.at(0, i) / std::sqrt(squares / 5 + 1e-6) * batch.norm[static_cast<size_t>(i)],
                1e-5);
  const double c = batch.angles.at(0, 1), s = batch.angles.at(0, 3);  // of the second pair
  EXPECT_NEAR(stored[5 + 2], batch.row.at(0, 7) * c - batch.row.at(0, 8) * s, 1e-5);
  EXPECT_NEAR(stored[5 + 3], batch.row.at(0, 8) * c + batch.row.at(0, 7) * s, 1e-5);
  EXPECT_NEAR(absorbed.at(0, 9 + 5 + 3), batch.q.at(0, 7 + 3 + 3) * c + batch.q.at(0, 7 + 3 + 2) * s, 1e-5);
}

TEST(HeadRouting, GivesEachHeadItsMatrix) {
  constexpr int32_t kRows = 5, kHeads = 3;
  std::vector<int32_t> chosen(kRows * kHeads, -1), order(chosen), offsets(kHeads + 1, -1);
  HeadRoutingOp::reference()->run({{.rows = kRows * kHeads,
                                    .groups = kHeads,
                                    .chosen = chosen.data(),
                                    .order = order.data(),
                                    .offsets = offsets.data()}},
                                  {});
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 5, 10, 15}));
  for (int32_t i = 0; i < kRows * kHeads; ++i) {
    EXPECT_EQ(chosen[static_cast<size_t>(i)], i % kHeads);
    EXPECT_EQ(order[static_cast<size_t>(i)], i % kRows * kHeads + i / kRows) << "pairs of a head, ascending";
  }
}

}  // namespace
}  // namespace millrace
