// A step allocates nothing once the model is loaded.
#include <atomic>
#include <cstdlib>
#include <new>

#include "models/golden.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
}  // namespace

void* operator new(size_t size) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace millrace {
namespace {

TEST(Allocation, StepsOfAnySizeAllocateNothing) {
  for (const bool exact : {true, false}) {
    auto runner = load(
        (goldens_folder() / "gemma2").string(),
        {.threads = 2, .exact = exact, .context = 128, .sequences = 3, .rows = 64, .logit_rows = 3, .block_size = 16});
    std::vector<BlockTable> tables;
    for (int i = 0; i < 3; ++i) {
      tables.push_back(runner->kv().new_table(128));
      ASSERT_TRUE(tables.back().reserve(128));
    }
    const std::vector<int32_t> tokens(64, 5);
    StepBatch step(64, 3, 3);
    allocations = 0;
    counting = true;
    for (const int32_t rows : {1, 2, 7, 20}) {
      for (const int32_t past : {0, 17, 60}) {
        step.clear();
        for (auto& table : tables)
          step.add(std::span(tokens).first(rows), past, past + rows, table.pages(), StepBatch::Logits::Last);
        runner->forward(step.batch());
      }
    }
    counting = false;
    EXPECT_EQ(allocations, 0) << (exact ? "exact" : "fast");
  }
}

}  // namespace
}  // namespace millrace
