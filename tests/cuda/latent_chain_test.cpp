// Steps of latent attention as a chain of programmatic launches: latent_write, the queries' product by head, attention,
// the values' product by head. Kernels request rows of earlier steps, weights and queries before the kernels in front
// of them end; the bits must be those of launches that wait.
#include <deque>

#include "base/thread_pool.h"
#include "cuda/gpu_routing.h"
#include "cuda/support.h"
#include "kernels/experts.h"
#include "kernels/kernel_set.h"

namespace millrace {
namespace {

constexpr int kHeads = 16, kPlain = 128, kTurned = 64, kLatent = 512, kValue = 128, kPage = 64, kSteps = 4;
constexpr int kInput = 128, kKey = kLatent + kTurned;

// A matrix of random numbers for each head, as the GPU's kernels read it.
class HeadMatrices {
 public:
  HeadMatrices(int64_t heads, int64_t n, int64_t k, Random& random, ThreadPool& pool)
      : layout_(*cuda_kernels().layouts.front()),
        stride_((layout_.bytes(DType::BF16, n, k) + 255) / 256 * 256),
        bytes_(stride_ * static_cast<size_t>(heads)) {
    const TestExperts all(DType::BF16, heads, n, k, random);
    for (int64_t head = 0; head < heads; ++head) {
      data_.push_back(bytes_.data() + static_cast<size_t>(head) * stride_);
      const WeightView view = all.file_view(head);
      layout_.upload({&view, 1}, bytes_.data() + static_cast<size_t>(head) * stride_, gpu_uploader(), pool);
    }
    weights_ = {DType::BF16, heads, n, k, &layout_, data_, stride_};
  }

  // y = x W^T, by the kernel for heads.
  void multiply(Matrix x, const Routing& routing, Matrix y, const Executor& executor, Matrix early_x = {}) const {
    const GroupedLinearOp::Problem problem{.format = DType::BF16,
                                           .layout = layout_.name(),
                                           .groups = weights_.groups,
                                           .n = weights_.n,
                                           .k = weights_.k,
                                           .rows = routing.rows,
                                           .x = DType::BF16,
                                           .by_head = true};
    const auto& kernels = cuda_kernels().of<GroupedLinearOp>();
    const auto of_heads =
        std::find_if(kernels.begin(), kernels.end(), [](auto* k) { return k->name() == "cuda_heads"; });
    ASSERT_TRUE(of_heads != kernels.end() && (*of_heads)->can_run(problem, gpu().hardware()));
    (*of_heads)->run({.x = x, .weights = &weights_, .routing = routing, .y = y, .early_x = early_x}, executor);
  }

 private:
  const LinearLayout& layout_;
  size_t stride_;
  GpuBytes bytes_;
  std::vector<const std::byte*> data_;
  GroupedWeights weights_;
};

// Rows without padding, so that a head is a row, too.
class Rows {
 public:
  Rows(int64_t rows, int64_t cols) : rows_(rows), cols_(cols), bytes_(static_cast<size_t>(rows * cols) * 2) {}
  Rows(int64_t rows, int64_t cols, Random& random, float scale = 1) : Rows(rows, cols) {
    std::vector<uint16_t> values(static_cast<size_t>(rows * cols));
    for (uint16_t& value : values) value = f32_to_bf16(random.normal(scale));
    gpu().memory().write(bytes_.data(), reinterpret_cast<const std::byte*>(values.data()), values.size() * 2);
  }
  Matrix whole() const { return {DType::BF16, rows_, cols_, cols_, bytes_.data()}; }
  Matrix by_head(int64_t n) const { return {DType::BF16, rows_ * kHeads, n, cols_ / kHeads, bytes_.data()}; }
  const GpuBytes& bytes() const { return bytes_; }

 private:
  int64_t rows_, cols_;
  GpuBytes bytes_;
};

// The batch of a step: one new token of each sequence.
struct StepTables {
  StepTables(const std::vector<int32_t>& pasts, int step, int pages_each) {
    std::vector<SliceTables::Slice> all;
    std::vector<int32_t> rows;
    for (size_t i = 0; i < pasts.size(); ++i) {
      const int32_t past = pasts[i] + step, page = static_cast<int32_t>(i) * pages_each + past / kPage;
      all.push_back({static_cast<int32_t>(i), 1, past, past + 1});
      rows.push_back(page * kPage + past % kPage);
    }
    slices = std::make_unique<GpuBytes>(all);
    slots = std::make_unique<GpuBytes>(rows);
  }
  std::unique_ptr<GpuBytes> slices, slots;
};

class Chain {
 public:
  Chain(std::vector<int32_t> pasts, Random& random, ThreadPool& pool)
      : pasts_(std::move(pasts)),
        batch_(std::ssize(pasts_)),
        pages_each_(*std::max_element(pasts_.begin(), pasts_.end()) / kPage + 2),
        make_q_(kHeads, kPlain + kTurned, kInput, random, pool),
        make_row_(1, kKey, kInput, random, pool),
        absorb_(kHeads, kLatent, kPlain, random, pool),
        to_value_(kHeads, kValue, kLatent, random, pool),
        cache_(batch_ * pages_each_ * kPage, kKey, random),
        q_(batch_, kHeads * (kPlain + kTurned)),
        row_(batch_, kKey),
        plain_(batch_, kHeads * kPlain),
        absorbed_(batch_, kHeads * kKey),
        sums_(batch_, kHeads * kLatent),
        norm_(std::vector<float>(kLatent, 1.0f)),
        angles_(std::vector<float>(static_cast<size_t>(batch_ * kTurned), 0.7f)),
        routing_(TestRouting(batch_ * kHeads, kHeads, 1, Spread::ByHead, random).view()),
        routing_of_rows_(TestRouting(batch_, 1, 1, Spread::ByHead, random).view()) {
    std::vector<int32_t> pages(static_cast<size_t>(batch_ * pages_each_));
    std::iota(pages.begin(), pages.end(), 0);
    pages_ = std::make_unique<GpuBytes>(pages);
    for (const int32_t past : pasts_) slices_.push_back({.rows = 1, .past = past});
    for (int step = 0; step < kSteps; ++step) {
      tables_.emplace_back(pasts_, step, pages_each_);
      inputs_of_q_.emplace_back(batch_, kHeads * kInput, random, 0.1f);
      inputs_of_row_.emplace_back(batch_, kInput, random, 0.1f);
      results_.emplace_back(batch_, kHeads * kValue);
    }
  }

  AttentionProblem problem() const { return problem_of(attention(0)).bucketed(); }

  void launch(const AttentionKernel& kernel, const Executor& executor) const {
    for (int step = 0; step < kSteps; ++step) {
      const auto at = static_cast<size_t>(step);
      make_q_.multiply(inputs_of_q_[at].by_head(kInput), routing_.view(), q_.by_head(kPlain + kTurned), executor);
      make_row_.multiply(inputs_of_row_[at].whole(), routing_of_rows_.view(), row_.whole(), executor);
      cuda_kernels().of<LatentWriteOp>().front()->run(write(step), executor);
      absorb_.multiply(plain_.by_head(kPlain), routing_.view(), absorbed_.by_head(kLatent), executor, q_.whole());
      kernel.run(attention(step), executor);
      to_value_.multiply(sums_.by_head(kLatent), routing_.view(), results_[at].by_head(kValue), executor);
    }
  }

  // The results of all steps, which are overwritten with NaN.
  std::vector<std::byte> take() const {
    std::vector<std::byte> all;
    for (const Rows& rows : results_) {
      const auto bytes = rows.bytes().read();
      all.insert(all.end(), bytes.begin(), bytes.end());
      const std::vector<std::byte> nan(bytes.size(), std::byte{0xff});
      gpu().memory().write(rows.bytes().data(), nan.data(), nan.size());
    }
    return all;
  }

 private:
  KvLayer cache() const {
    KvLayer kv{DType::BF16, 1, kKey, kLatent, kPage, batch_ * pages_each_};
    kv.latent = true;
    kv.keys = kv.values = cache_.bytes().data();
    return kv;
  }
  SliceTables tables(int step) const {
    SliceTables t;
    t.slices = tables_[static_cast<size_t>(step)].slices->as<SliceTables::Slice>();
    t.row_slots = tables_[static_cast<size_t>(step)].slots->as<int32_t>();
    t.pages = pages_->as<int32_t>();
    t.page_stride = pages_each_;
    t.longest_slice = 1;
    return t;
  }
  LatentWriteOp::Args write(int step) const {
    return {.row = row_.whole(),
            .norm = norm_.as<float>(),
            .q = q_.whole(),
            .absorbed = absorbed_.whole(),
            .plain = plain_.whole(),
            .angles = {DType::F32, batch_, kTurned, kTurned, angles_.data()},
            .kv = cache(),
            .heads = kHeads,
            .sequences = slices_,
            .tables = tables(step)};
  }
  AttentionArgs attention(int step) const {
    AttentionArgs a;
    a.q = absorbed_.whole();
    a.out = sums_.whole();
    a.kv = cache();
    a.sequences = slices_;
    a.heads = kHeads;
    a.scale = 0.05f;
    a.tables = tables(step);
    return a;
  }

  std::vector<int32_t> pasts_;
  int64_t batch_;
  int pages_each_;
  HeadMatrices make_q_, make_row_, absorb_, to_value_;
  Rows cache_, q_, row_, plain_, absorbed_, sums_;
  GpuBytes norm_, angles_;
  GpuRouting routing_, routing_of_rows_;
  std::unique_ptr<GpuBytes> pages_;
  std::vector<SequenceSlice> slices_;
  std::vector<StepTables> tables_;
  std::deque<Rows> inputs_of_q_, inputs_of_row_, results_;
};

TEST(CudaLatentChain, OverlapChangesNoBits) {
  if (!starts_early(gpu().hardware())) GTEST_SKIP() << "this GPU has no programmatic launches";
  ThreadPool pool(8);
  Random random;
  SCOPED_TRACE("seed " + std::to_string(random.seed()));
  for (const int batch : {1, 5, 64}) {
    std::vector<int32_t> pasts;
    for (int i = 0; i < batch; ++i) pasts.push_back(i % 3 == 0 ? 1021 : i % 3 == 1 ? 62 : 300 + i);
    const Chain chain(pasts, random, pool);
    for (const AttentionKernel* kernel : cuda_kernels().of<AttentionOp>()) {
      if (!kernel->can_run(chain.problem(), gpu().hardware())) continue;
      SCOPED_TRACE(testing::Message() << kernel->name() << ", " << batch << " sequences");
      const GpuBytes workspace(
          std::vector<std::byte>(kernel->workspace_bytes(chain.problem(), gpu().hardware()), std::byte{0}));
      Executor executor = on_gpu(workspace.data());
      chain.take();
      chain.launch(*kernel, executor);
      const auto expected = chain.take();
      EXPECT_TRUE(expected != std::vector<std::byte>(expected.size(), std::byte{0xff}));
      executor.overlap = true;
      chain.launch(*kernel, executor);
      EXPECT_TRUE(chain.take() == expected);
      ASSERT_TRUE(gpu().begin_recording());
      chain.launch(*kernel, executor);
      const auto recording = gpu().end_recording();
      ASSERT_NE(recording, nullptr);
      for (int i = 0; i < 20; ++i) {
        recording->replay();
        EXPECT_TRUE(chain.take() == expected) << "replay " << i;
      }
    }
  }
}

}  // namespace
}  // namespace millrace
