#include "server/model_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "base/error.h"

namespace millrace {
namespace {

using State = ModelTable::State;
using Room = ModelTable::Room;
using testing::ElementsAre;
using testing::HasSubstr;

// The table alone

void put_in(ModelTable& table, size_t model, int64_t bytes, int64_t limit = 100) {
  size_t victim = 0;
  table.begin_load(model);
  ASSERT_EQ(table.reserve(model, bytes, limit, victim), Room::Granted);
  table.loaded(model);
}

TEST(ModelTable, EvictsTheLeastRecentlyUsedIdleModel) {
  ModelTable table(4);
  for (size_t model : {0, 1, 2}) put_in(table, model, 30);
  ASSERT_TRUE(table.take(0));  // in use
  ASSERT_TRUE(table.take(1));
  table.release(1);  // used after 2
  EXPECT_EQ(table.held(), 90);
  size_t victim = 0;
  table.begin_load(3);
  EXPECT_EQ(table.reserve(3, 50, 100, victim), Room::Evict);
  EXPECT_EQ(victim, 2u);
  EXPECT_FALSE(table.take(2));
  table.unloaded(2);
  EXPECT_EQ(table.reserve(3, 50, 100, victim), Room::Evict) << "90 - 30 + 50 is still too much";
  EXPECT_EQ(victim, 1u);
  table.unloaded(1);
  EXPECT_EQ(table.reserve(3, 50, 100, victim), Room::Granted);
}

TEST(ModelTable, AModelInUseGivesNoNewLeasesWhileAnotherWaitsForItsMemory) {
  ModelTable table(2);
  put_in(table, 0, 80);
  ASSERT_TRUE(table.take(0));
  size_t victim = 0;
  table.begin_load(1);
  EXPECT_EQ(table.reserve(1, 80, 100, victim), Room::Wait);
  EXPECT_FALSE(table.take(0));
  table.release(0);
  EXPECT_EQ(table.reserve(1, 80, 100, victim), Room::Evict);
  EXPECT_EQ(victim, 0u);
}

TEST(ModelTable, AGivenUpLoadLetsTheOtherModelStay) {
  ModelTable table(2);
  put_in(table, 0, 80);
  ASSERT_TRUE(table.take(0));
  size_t victim = 0;
  table.begin_load(1);
  EXPECT_EQ(table.reserve(1, 80, 100, victim), Room::Wait);
  table.failed(1, "");
  EXPECT_TRUE(table.take(0));
  EXPECT_EQ(table.row(1).state, State::Unloaded);
}

TEST(ModelTable, AModelLargerThanTheLimitEvictsNothing) {
  ModelTable table(2);
  put_in(table, 0, 80);
  size_t victim = 0;
  table.begin_load(1);
  EXPECT_EQ(table.reserve(1, 101, 100, victim), Room::TooLarge);
  EXPECT_EQ(table.row(0).state, State::Loaded);
}

// The pool, with models that load when the test says so

struct Factory {  // what the fakes share; used by the test's thread and the pool's
  std::mutex mutex;
  std::vector<std::string> log;                 // "load 0", "gone 0"
  std::vector<std::shared_future<void>> gates;  // by model: a load waits for it
  std::vector<std::string> problems;            // by model: a load fails with it
  std::vector<int64_t> bytes;

  explicit Factory(size_t models) : problems(models), bytes(models, 60) {
    std::promise<void> open;
    open.set_value();
    gates.assign(models, open.get_future().share());
  }
  void note(const std::string& line) {
    const std::lock_guard lock(mutex);
    log.push_back(line);
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex);
    return log;
  }
};

class Fake final : public PooledModel {
 public:
  Fake(Factory& factory, size_t index) : factory_(factory), index_(index) {}
  ~Fake() override {
    if (loaded_) factory_.note(fmt::format("gone {}", index_));
  }
  void load(const MakeRoom& make_room) override {
    make_room(factory_.bytes[index_], 1000);
    factory_.gates[index_].wait();
    std::string problem;
    {
      const std::lock_guard lock(factory_.mutex);
      problem = factory_.problems[index_];
    }
    if (!problem.empty()) fail(ErrorKind::BadFile, "{}", problem);
    loaded_ = true;
    factory_.note(fmt::format("load {}", index_));
  }

 private:
  Factory& factory_;
  size_t index_;
  bool loaded_ = false;
};

struct Result {  // of one acquire
  ModelPool::Lease lease;
  std::optional<ModelPool::Refusal> refusal;
  std::string problem;
};

class ModelPoolTest : public testing::Test {
 protected:
  void make(size_t models, ModelPool::Options options = {.memory = 100}) {
    factory_ = std::make_unique<Factory>(models);
    std::vector<ModelPool::Member> members;
    for (size_t i = 0; i < models; ++i) {
      members.push_back({{fmt::format("m{}", i)}, [this, i] { return std::make_shared<Fake>(*factory_, i); }});
    }
    pool_ = std::make_unique<ModelPool>(std::move(members), options, [](const ModelPool::Event&) {});
  }

  std::future<Result> ask(size_t model) {
    auto promise = std::make_shared<std::promise<Result>>();
    pool_->acquire(
        model,
        [promise](ModelPool::Lease lease) {
          promise->set_value({std::move(lease), std::nullopt, ""});
        },
        [promise](ModelPool::Refusal why, const std::string& problem) {
          promise->set_value({nullptr, why, problem});
        });
    return promise->get_future();
  }

  void close_gate(size_t model, std::promise<void>& gate) { factory_->gates[model] = gate.get_future().share(); }

  std::unique_ptr<Factory> factory_;
  std::unique_ptr<ModelPool> pool_;
};

TEST_F(ModelPoolTest, LoadsOnceForAllThatWait) {
  make(2);
  std::promise<void> gate;
  close_gate(0, gate);
  auto first = ask(0), second = ask(0);
  gate.set_value();
  EXPECT_TRUE(first.get().lease);
  EXPECT_TRUE(second.get().lease);
  EXPECT_THAT(factory_->lines(), ElementsAre("load 0"));
  EXPECT_EQ(pool_->status(0).state, State::Loaded);
  while (pool_->status(0).leases != 0) std::this_thread::yield();  // the pool drops its own copies a moment later
  EXPECT_EQ(pool_->status(1).state, State::Unloaded);
  EXPECT_EQ(pool_->find("m1"), 1u);
  EXPECT_EQ(pool_->find("m2"), std::nullopt);
}

TEST_F(ModelPoolTest, UnloadsAnIdleModelForAnother) {
  make(2);
  ask(0).get();
  ask(1).get();
  EXPECT_THAT(factory_->lines(), ElementsAre("load 0", "gone 0", "load 1"));
  ask(0).get();
  EXPECT_EQ(pool_->status(1).state, State::Unloaded);
}

TEST_F(ModelPoolTest, AModelInUseIsNotUnloaded) {
  make(2);
  Result using_it = ask(0).get();
  auto other = ask(1), again = ask(0);
  // Requests are served by the loaded model until the load of the other one asks for its memory.
  while (again.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    again.get();
    again = ask(0);
  }
  EXPECT_EQ(other.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(pool_->status(0).state, State::Loaded);
  using_it.lease.reset();
  EXPECT_TRUE(other.get().lease);
  EXPECT_TRUE(again.get().lease) << "loaded again afterwards";
}

TEST_F(ModelPoolTest, AFailedLoadIsExplainedAndTriedAgain) {
  make(2);
  factory_->problems[0] = "m0.gguf: is broken";
  const Result refused = ask(0).get();
  EXPECT_EQ(refused.refusal, ModelPool::Refusal::Failed);
  EXPECT_THAT(refused.problem, HasSubstr("broken"));
  EXPECT_THAT(pool_->status(0).problem, HasSubstr("broken"));
  EXPECT_TRUE(ask(1).get().lease) << "the other one serves";
  {
    const std::lock_guard lock(factory_->mutex);
    factory_->problems[0] = "";
  }
  EXPECT_TRUE(ask(0).get().lease);
  EXPECT_EQ(pool_->status(0).problem, "");
}

TEST_F(ModelPoolTest, AModelThatNeverFitsIsRefusedWithItsSize) {
  make(2);
  factory_->bytes[1] = 101;
  ask(0).get();
  const Result refused = ask(1).get();
  EXPECT_EQ(refused.refusal, ModelPool::Refusal::Failed);
  EXPECT_THAT(refused.problem, HasSubstr("--models-memory"));
  EXPECT_EQ(pool_->status(0).state, State::Loaded);
}

TEST_F(ModelPoolTest, WaitingIsBoundedInNumber) {
  make(2, {.memory = 100, .most_waiting = 2});
  std::promise<void> gate;
  close_gate(0, gate);
  auto first = ask(0), second = ask(0);
  EXPECT_EQ(ask(0).get().refusal, ModelPool::Refusal::Busy);
  gate.set_value();
  EXPECT_TRUE(first.get().lease);
  EXPECT_TRUE(second.get().lease);
}

TEST_F(ModelPoolTest, WaitingIsBoundedInTime) {
  make(2, {.memory = 100, .patience = std::chrono::milliseconds(0)});
  std::promise<void> gate;
  close_gate(0, gate);
  EXPECT_EQ(ask(0).get().refusal, ModelPool::Refusal::Loading);
  gate.set_value();
}

TEST_F(ModelPoolTest, ALoadThatNoRequestWaitsForLeavesTheOtherModelInPlace) {
  make(2, {.memory = 100, .patience = std::chrono::milliseconds(0)});
  pool_->preload(0);
  Result using_it = ask(0).get();
  while (!using_it.lease) using_it = ask(0).get();
  EXPECT_EQ(ask(1).get().refusal, ModelPool::Refusal::Loading) << "no memory while the other one is used";
  Result again = ask(0).get();
  while (!again.lease) again = ask(0).get();
  EXPECT_EQ(pool_->status(0).state, State::Loaded);
  EXPECT_THAT(factory_->lines(), ElementsAre("load 0"));
}

TEST_F(ModelPoolTest, ClosesWhileItLoads) {
  make(3);
  std::promise<void> gate;
  close_gate(0, gate);
  auto loading = ask(0), waiting = ask(1);
  pool_->close();
  EXPECT_EQ(loading.get().refusal, ModelPool::Refusal::Closed);
  EXPECT_EQ(waiting.get().refusal, ModelPool::Refusal::Closed);
  EXPECT_EQ(ask(2).get().refusal, ModelPool::Refusal::Closed);
  gate.set_value();
  pool_.reset();
}

TEST_F(ModelPoolTest, ClosesWhileALoadWaitsForMemory) {
  make(2);
  Result using_it = ask(0).get();
  auto waiting = ask(1);
  pool_->close();
  EXPECT_EQ(waiting.get().refusal, ModelPool::Refusal::Closed);
  pool_.reset();
  using_it.lease.reset();  // a lease may outlive the pool
}

}  // namespace
}  // namespace millrace
