#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace millrace {
namespace {

TEST(ThreadPool, RunsTheBodyOnceOnEveryWorker) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> calls(threads);
      pool.run([&](int worker) { calls[worker]++; });
      for (auto& count : calls) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, ParallelForCoversEveryIndexOnce) {
  ThreadPool pool(3);
  for (int64_t count : {0, 1, 2, 15, 16, 17, 1000}) {
    std::vector<std::atomic<int>> hits(count);
    pool.parallel_for(count, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) hits[i]++;
    });
    for (auto& hit : hits) ASSERT_EQ(hit, 1);
  }
}

TEST(ThreadPool, WakesWorkersThatWentToSleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> calls{0};
    pool.run([&](int) { calls++; });
    EXPECT_EQ(calls, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace
}  // namespace millrace
