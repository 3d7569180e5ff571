// Many threads submit, cancel and read statistics of one service. Every stream ends exactly once, with its own tokens.
#include "engine/service.h"

#include <gmock/gmock.h>

#include <future>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "base/error.h"
#include "engine/where.h"
#include "fresh_seed.h"
#include "models/golden.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

struct Heard {
  std::map<int32_t, std::vector<int32_t>> tokens;  // by choice
  std::map<int32_t, FinishReason> ends;
  int32_t cached = 0;
};

// Collects the emissions of a request; get() waits for the last one.
class Listener {
 public:
  explicit Listener(int32_t choices = 1) : state_(std::make_shared<State>()) { state_->open = choices; }

  Service::OnEmission callback() const {
    return [state = state_](const Emission& e) {
      Heard& heard = state->heard;
      if (e.token >= 0) heard.tokens[e.choice].push_back(e.token);
      heard.cached = std::max(heard.cached, e.cached_tokens);
      if (e.finish == FinishReason::None) return;
      EXPECT_TRUE(heard.ends.emplace(e.choice, e.finish).second) << "a choice ends once";
      if (--state->open == 0) state->done.set_value(heard);
    };
  }
  Heard get() const { return state_->done.get_future().get(); }

 private:
  struct State {
    Heard heard;
    int32_t open = 0;
    std::promise<Heard> done;
  };
  std::shared_ptr<State> state_;
};

class ServiceTest : public testing::TestWithParam<Where> {
 protected:
  std::unique_ptr<Runner> runner_ = load((goldens_folder() / "llama_gqa").string(), at(GetParam(), {.threads = 1,
                                                                                                    .exact = true,
                                                                                                    .context = 128,
                                                                                                    .sequences = 4,
                                                                                                    .rows = 32,
                                                                                                    .kv_tokens = 256,
                                                                                                    .block_size = 16}));

  static Request request(int32_t seed, int32_t length, int32_t tokens) {
    Request r{{}, {.temperature = 0.8f, .seed = static_cast<uint64_t>(seed)}, tokens};
    for (int32_t i = 0; i < length; ++i) r.prompt.push_back((seed * 31 + i * 7) % 90);
    r.client = "client " + std::to_string(seed % 3);
    return r;
  }
};

TEST_P(ServiceTest, StreamsFromManyThreadsAreNotMixed) {
  constexpr int kThreads = 4, kEach = 8;
  std::map<int, std::vector<int32_t>> alone;
  {
    Service service(*runner_, {});
    for (int i = 0; i < kThreads * kEach; ++i) {
      const Listener listener;
      service.submit(request(i, 5 + i, 6), listener.callback());
      alone[i] = listener.get().tokens[0];
    }
  }
  Service service(*runner_, {});
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Listener> listeners;
      for (int i = 0; i < kEach; ++i) {
        listeners.emplace_back();
        service.submit(request(t * kEach + i, 5 + t * kEach + i, 6), listeners.back().callback());
      }
      for (int i = 0; i < kEach; ++i) {
        Heard heard = listeners[static_cast<size_t>(i)].get();
        EXPECT_EQ(heard.tokens[0], alone[t * kEach + i]);
        EXPECT_EQ(heard.ends[0], FinishReason::Length);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(service.drain(milliseconds(10000)));
  const EngineStats stats = service.stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.kv_blocks_used, 0);
  EXPECT_EQ(stats.requests, uint64_t{kThreads * kEach});
  EXPECT_EQ(stats.generated_tokens, uint64_t{kThreads * kEach * 6});
}

TEST_P(ServiceTest, EveryStreamEndsWhateverIsCancelled) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  Service service(*runner_, {.most_waiting = 1000});
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + t);
      std::vector<Listener> listeners;
      for (int i = 0; i < 25; ++i) {
        Request r = request(static_cast<int32_t>(random() % 50), 1 + static_cast<int32_t>(random() % 60),
                            1 + static_cast<int32_t>(random() % 40));
        r.choices = 1 + static_cast<int32_t>(random() % 3);
        r.priority = static_cast<int>(random() % 3);
        const int32_t choices = r.choices;
        listeners.emplace_back(choices);
        const RequestId id = service.submit(std::move(r), listeners.back().callback());
        if (random() % 3 == 0) service.cancel(id);
        if (random() % 3 == 0) service.cancel(id, static_cast<int32_t>(random()) % choices);
        if (random() % 4 == 0) std::this_thread::sleep_for(milliseconds(random() % 3));
        service.stats();
      }
      for (const auto& listener : listeners) listener.get();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(service.drain(milliseconds(10000)));
  EXPECT_EQ(service.stats().kv_blocks_used, 0);
}

TEST_P(ServiceTest, RefusesMoreThanMayWait) {
  Service service(*runner_, {.most_waiting = 2});
  std::vector<Listener> listeners;
  bool busy = false;
  for (int i = 0; i < 100 && !busy; ++i) {
    listeners.emplace_back();
    try {
      service.submit(request(i, 60, 60), listeners.back().callback());
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Busy);
      listeners.pop_back();
      busy = true;
    }
  }
  EXPECT_TRUE(busy);
  for (const auto& listener : listeners) listener.get();
}

TEST_P(ServiceTest, DrainsAndThenRefuses) {
  Service service(*runner_, {});
  std::vector<Listener> listeners(200);  // four run at a time, so the last waits long
  for (const auto& listener : listeners) service.submit(request(1, 20, 100), listener.callback());
  EXPECT_FALSE(service.drain(milliseconds(0))) << "nothing takes no time";
  EXPECT_EQ(listeners.back().get().ends[0], FinishReason::Cancelled);
  EXPECT_TRUE(service.draining());
  EXPECT_THROW(service.submit(request(1, 20, 1), [](const Emission&) {}), Error);
}

TEST_P(ServiceTest, ItsEndEndsEveryStream) {
  std::vector<Listener> listeners;
  {
    Service service(*runner_, {});
    for (int i = 0; i < 10; ++i) {
      listeners.emplace_back(2);
      Request r = request(i, 50, 70);
      r.choices = 2;
      service.submit(std::move(r), listeners.back().callback());
    }
  }
  for (const auto& listener : listeners) EXPECT_EQ(listener.get().ends.size(), 2u);
}

TEST_P(ServiceTest, SharesPrefixes) {
  Service service(*runner_, {});
  const Listener first, second;
  service.submit(request(1, 100, 4), first.callback());
  EXPECT_EQ(first.get().cached, 0);
  Request again = request(1, 100, 4);
  again.prompt.push_back(3);
  service.submit(std::move(again), second.callback());
  EXPECT_EQ(second.get().cached, 100) << "to the token, not to the page";
  EXPECT_TRUE(service.drain(milliseconds(10000)));  // statistics are published when the service is idle
  EXPECT_EQ(service.stats().cached_tokens, 100u);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, ServiceTest, testing::ValuesIn(tested_places()), name_of);

}  // namespace
}  // namespace millrace
