#include "engine/fair_queue.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace {
namespace {

class FairQueueTest : public testing::Test {
 protected:
  BlockPool pool_{4};
  FairQueue queue_;
  RequestId next_ = 1;

  RequestId push(const std::string& client, double arrival, int priority = 0) {
    auto group = std::make_shared<Group>();
    group->id = next_++;
    group->arrival = arrival;
    group->request.prompt = {1};
    group->request.client = client;
    group->request.priority = priority;
    queue_.push(std::make_unique<Sequence>(group, 0, BlockTable(pool_, 16, 16), 16, 10));
    return group->id;
  }

  // Serves the next sequence and charges its client; returns the client's name.
  std::string serve(double now, double tokens) {
    Sequence* next = queue_.next(now);
    if (next == nullptr) return "";
    const std::string client = next->client();
    queue_.take(next);
    queue_.charge(client, tokens);
    return client;
  }
};

TEST_F(FairQueueTest, OneClientIsServedInOrder) {
  const RequestId first = push("a", 1), second = push("a", 2);
  EXPECT_EQ(queue_.next(3)->id(), first);
  queue_.take(queue_.next(3));
  EXPECT_EQ(queue_.next(3)->id(), second);
  EXPECT_EQ(queue_.size(), 1u);
}

TEST_F(FairQueueTest, ClientsShareByTokensNotByRequests) {
  for (int i = 0; i < 100; ++i) push("many", 0), push("large", 0.5);
  std::map<std::string, double> tokens;
  for (int i = 0; i < 60; ++i) {
    Sequence* next = queue_.next(1);
    const double cost = next->client() == "many" ? 10 : 100;
    tokens[serve(1, cost)] += cost;
  }
  EXPECT_NEAR(tokens["many"], tokens["large"], 100) << "no more than one request apart";
}

TEST_F(FairQueueTest, AFloodDoesNotDelayTheOthers) {
  for (int i = 0; i < 1000; ++i) push("flood", 0);
  for (int i = 0; i < 50; ++i) serve(1, 100);
  push("light", 1);
  EXPECT_LE((serve(1, 100) == "light") + (serve(1, 100) == "light"), 1);
  push("light", 2);
  push("light", 2);
  int served = 0;
  for (int i = 0; i < 4; ++i) served += serve(2, 100) == "light";
  EXPECT_GE(served, 2) << "every other turn at least";
}

TEST_F(FairQueueTest, IdlingEarnsNothing) {
  push("a", 0);
  push("b", 0);
  serve(0, 10), serve(0, 10);
  for (int i = 0; i < 50; ++i) push("a", 1);
  for (int i = 0; i < 40; ++i) serve(1, 100);  // b is idle
  for (int i = 0; i < 50; ++i) push("b", 2);
  std::map<std::string, int> served;
  for (int i = 0; i < 10; ++i) ++served[serve(2, 100)];
  EXPECT_GE(served["a"], 4);
  EXPECT_GE(served["b"], 4);
}

TEST_F(FairQueueTest, PrioritiesGoFirstAndWaitingRaisesThem) {
  const RequestId low = push("a", 0, -1);
  const RequestId high = push("a", 1, 2);
  EXPECT_EQ(queue_.next(1)->id(), high);
  const double later = 4 * FairQueue::kSecondsPerLevel;
  push("b", later, 2);
  queue_.erase_if([&](Sequence& s) { return s.id() == high; });
  queue_.charge("b", 1000);
  EXPECT_EQ(queue_.next(later)->id(), low) << "it has risen to the top, and its client used less";
}

TEST_F(FairQueueTest, NobodyStarvesUnderALoadOfHigherPriority) {
  push("patient", 0, 0);
  bool served = false;
  for (int second = 0; second < 200 && !served; ++second) {
    push("urgent", second, 3);
    push("urgent", second, 3);
    served = serve(second, 100) == "patient";
  }
  EXPECT_TRUE(served);
}

TEST_F(FairQueueTest, EndlessNamesAreForgotten) {
  for (int i = 0; i < 5000; ++i) {
    push("client " + std::to_string(i), i);
    serve(i, 1);
  }
  EXPECT_TRUE(queue_.empty());
  EXPECT_LT(queue_.clients(), 2000u);
}

}  // namespace
}  // namespace millrace
