#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
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

TEST(ThreadPool, RegionsDoNotWaitForAWorkerOnAnErrand) {
  for (int threads : {2, 3}) {
    ThreadPool pool(threads);
    std::atomic<bool> may_return{false};
    std::atomic<int> done{0};
    ASSERT_TRUE(pool.errand([&] {
      while (!may_return) std::this_thread::yield();
      done++;
    }));
    for (int round = 0; round < 100; ++round) {
      std::vector<std::atomic<int>> hits(40);
      pool.share(40, 1, [&](int worker, int64_t begin, int64_t) {
        EXPECT_NE(worker, threads - 1);
        hits[begin]++;
      });
      for (auto& hit : hits) ASSERT_EQ(hit, 1);
    }
    may_return = true;
    pool.finish_errands();
    EXPECT_EQ(done, 1);
  }
}

TEST(ThreadPool, RunsErrandsInOrderBetweenRegionsOfAllKinds) {
  ThreadPool pool(3);
  std::vector<int> order;
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(pool.errand([&order, i] { order.push_back(i); }));
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i));
    std::vector<std::atomic<int>> calls(3), hits(50);
    pool.run([&](int worker) { calls[worker]++; });
    pool.parallel_for(50, 3, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) hits[at]++;
    });
    for (auto& count : calls) ASSERT_EQ(count, 1);
    for (auto& hit : hits) ASSERT_EQ(hit, 1);
  }
  pool.finish_errands();
  ASSERT_EQ(order.size(), 500u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(ThreadPool, RunsErrandsWhileItSleepsAndBeforeItEnds) {
  std::atomic<int> done{0};
  {
    ThreadPool pool(2);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_TRUE(pool.errand([&] { done++; }));
    for (int i = 0; i < 2000 && done == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(done, 1);
    ASSERT_TRUE(pool.errand([&] { done++; }));
  }
  EXPECT_EQ(done, 2);
  EXPECT_FALSE(ThreadPool(1).errand([] {}));
}

}  // namespace
}  // namespace millrace
