// Sessions that wait for a tool: their state leaves the device for other requests and returns, and the answer is the
// one of a session that never left.
#include "engine/parking.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <random>

#include "engine/service.h"
#include "fresh_seed.h"
#include "models/golden.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;

class ParkingTest : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t kTokens = 256;

  void start(const ParkLimits& limits, int64_t kv_tokens = kTokens) {
    stop();
    LoadOptions options{.threads = 1, .exact = true, .context = 128, .sequences = 2, .rows = 32};
    options.block_size = 16;
    options.kv_tokens = kv_tokens;
    options.batch_invariant = true;
    runner_ = load((goldens_folder() / GetParam()).string(), options);
    states_ = std::make_unique<ParkedStates>(limits, "model");
    EngineOptions engine;
    engine.parked = states_.get();
    engine_ = std::make_unique<Engine>(*runner_, engine);
  }
  void stop() {
    engine_.reset();
    states_.reset();
  }

  Tokens run(const Tokens& prompt, int stop_after = 1000) {
    Request request{.prompt = prompt, .max_tokens = 6};
    request.sampling.temperature = 0;
    const RequestId id = engine_->submit(std::move(request));
    Tokens answer;
    while (engine_->step([&](const Emission& e) {
      answer.push_back(e.token);
      cached_ = e.cached_tokens;
    })) {
      if (std::ssize(answer) >= stop_after) engine_->cancel(id);
    }
    return answer;
  }
  static Tokens prompt(int32_t session, size_t length = 40) {
    Tokens tokens(length);
    for (size_t i = 0; i < length; ++i)
      tokens[i] = static_cast<int32_t>((i * 7 + i / 16 * static_cast<size_t>(session)) % 60);
    return tokens;
  }
  static Tokens with(Tokens tokens, const Tokens& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  }
  // Two turns of a session; `between` runs while its client works.
  Tokens two_turns(const std::function<void(const Tokens& session)>& between) {
    const Tokens first = with(prompt(1), run(prompt(1)));
    between(first);
    return run(with(first, Tokens(9, 5)));
  }
  // Needs every page, so that all others leave the tree.
  void fill() {
    for (int32_t i = 0; i < 3; ++i) run(Tokens(120, 30 + i));
  }

  std::unique_ptr<Runner> runner_;
  std::unique_ptr<ParkedStates> states_;
  std::unique_ptr<Engine> engine_;
  int32_t cached_ = 0;
};

TEST_P(ParkingTest, GoesOnWhereItWas) {
  start({.memory = 1 << 24}, 4096);
  const Tokens wanted = two_turns([](const Tokens&) {});
  const int32_t cached = cached_;
  EXPECT_GE(cached, 45);

  start({});
  two_turns([&](const Tokens&) { fill(); });
  EXPECT_EQ(cached_, 0) << "without parking the state is gone";

  start({.memory = 1 << 24});
  const Tokens resumed = two_turns([&](const Tokens& session) {
    engine_->park(nullptr, session);
    EXPECT_EQ(engine_->parked_place(nullptr, session).place, ParkPlace::Device);
    fill();
    EXPECT_EQ(engine_->parked_place(nullptr, session).place, ParkPlace::Memory);
    EXPECT_GE(engine_->parked_place(nullptr, session).tokens, 45);
  });
  EXPECT_EQ(resumed, wanted);
  EXPECT_EQ(cached_, cached);
  EXPECT_EQ(states_->stats().restored, 1U);
  EXPECT_EQ(states_->stats().in_memory, 0);
}

TEST_P(ParkingTest, ReturnsFromDiskToAnotherProcess) {
  const fs::path folder = fs::path(testing::TempDir()) / ("millrace-parking-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  const ParkLimits limits{.memory = 0, .folder = folder, .disk = 1 << 24};
  start(limits);
  const Tokens wanted = two_turns([](const Tokens&) {});
  start(limits);
  Tokens session = with(prompt(1), run(prompt(1)));
  engine_->park(nullptr, session);
  fill();
  states_->settle();
  EXPECT_EQ(engine_->parked_place(nullptr, session).place, ParkPlace::Disk);
  const Tokens other = with(prompt(2), run(prompt(2)));
  engine_->park(nullptr, other);
  engine_->save_parked();  // as the end of a process does
  start(limits);
  EXPECT_EQ(states_->stats().on_disk, 2);
  EXPECT_EQ(run(with(session, Tokens(9, 5))), wanted);
  EXPECT_GE(cached_, 45);
  states_->settle();
  EXPECT_EQ(states_->stats().on_disk, 1);
  stop();
  fs::remove_all(folder);
}

// The prompt of the next turn may leave out the end of the answer.
TEST_P(ParkingTest, ResumesWhereTheNextPromptParts) {
  start({.memory = 1 << 24}, 4096);
  run(prompt(1));
  const Tokens parts = with(prompt(1), Tokens(8, 4));
  const Tokens wanted = run(parts);
  start({.memory = 1 << 24});
  const Tokens session = with(prompt(1), run(prompt(1)));
  engine_->park(nullptr, session);
  fill();
  EXPECT_EQ(run(parts), wanted);
  EXPECT_GE(cached_, 32);
  EXPECT_EQ(states_->stats().in_memory, 1) << "the session itself may still go on";
  engine_->forget_parked(nullptr, session);
  EXPECT_EQ(states_->stats().in_memory, 0);
}

TEST_P(ParkingTest, NothingLeaks) {
  start({.memory = 1 << 16});
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::vector<Tokens> parked;
  for (int turn = 0; turn < 120; ++turn) {
    Tokens begin = prompt(static_cast<int32_t>(random() % 50), 20 + random() % 40);
    if (!parked.empty() && random() % 2 == 0) {
      begin = with(parked.back(), Tokens(1 + random() % 5, static_cast<int32_t>(random() % 60)));
      if (begin.size() > 110) begin.resize(30);
    }
    const bool cancelled = random() % 3 == 0;
    const Tokens answer = run(begin, cancelled ? 1 : 1000);
    if (!parked.empty() && random() % 2 == 0) {
      engine_->forget_parked(nullptr, parked.back());
      parked.pop_back();
    }
    if (cancelled) continue;
    parked.push_back(with(begin, answer));
    engine_->park(nullptr, parked.back());
  }
  EngineStats stats;
  engine_->fill(stats);
  EXPECT_GT(stats.parked.saved, 0U);
  EXPECT_EQ(stats.running + stats.kv_blocks_used, 0);
  EXPECT_LE(stats.parked.pages, stats.kv_blocks_cached);
  EXPECT_LE(stats.parked.memory_bytes, 1 << 16);
  fill();
  engine_->fill(stats);
  EXPECT_EQ(stats.parked.pages, 0);
  for (const Tokens& session : parked) states_->forget({}, session);
  EXPECT_EQ(stats.kv_blocks_used, 0);
  EXPECT_EQ(runner_->state().blocks().free() + stats.kv_blocks_cached, stats.kv_blocks);
  const int64_t slots = runner_->state().slots().size();
  EXPECT_EQ(runner_->state().slots().free() + stats.snapshots, slots);
}

INSTANTIATE_TEST_SUITE_P(Models, ParkingTest, testing::Values("llama_gqa", "qwen3_next", "mamba2"));

// The service parks between steps; its last act is to write what the device holds.
TEST(ParkingServiceTest, KeepsParkedStateOverARestart) {
  const fs::path folder = fs::path(testing::TempDir()) / ("millrace-service-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  LoadOptions options{.threads = 1, .exact = true, .context = 128, .sequences = 2, .rows = 32};
  options.block_size = 16;
  const auto runner = load((goldens_folder() / "llama_gqa").string(), options);
  Tokens session(50);
  for (size_t i = 0; i < session.size(); ++i) session[i] = static_cast<int32_t>(i * 11 % 60);
  const auto run = [&](Service& service, Tokens prompt) {
    std::promise<int32_t> done;
    service.submit(Request{.prompt = std::move(prompt), .max_tokens = 2}, [&](const Emission& e) {
      if (e.finish != FinishReason::None) done.set_value(e.cached_tokens);
    });
    return done.get_future().get();
  };
  const auto place = [&](Service& service) {
    return service.parked_places(std::vector<Service::ParkedTokens>{{nullptr, session}})[0].place;
  };
  ServiceOptions parks;
  parks.park = {.memory = 1 << 20, .folder = folder, .disk = 1 << 20};
  {
    Service service(*runner, parks);
    run(service, session);
    service.park(nullptr, session, {});
    EXPECT_EQ(place(service), ParkPlace::Device);
  }
  Service service(*runner, parks);
  EXPECT_EQ(place(service), ParkPlace::Disk);
  EXPECT_GE(run(service,
                [&] {
                  auto longer = session;
                  longer.resize(60, 3);
                  return longer;
                }()),
            49);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace millrace
