#include "engine/service.h"

#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/fingerprint.h"
#include "engine/token_rate.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kStatsPeriod = std::chrono::milliseconds(100);  // for the live view

// State fits only the same weights, and a cache of the same number format, page size and device.
std::string park_mark(Runner& runner) {
  const StateOptions& state = runner.state().options();
  const bool cpu = runner.hardware().device == DeviceKind::Cpu;
  return fmt::format("{:016x}-{}-{}{}{}", fingerprint(runner.source()), name(state.dtype), state.block_size,
                     cpu ? "" : "-gpu", runner.options().exact ? "-exact" : "");
}

std::unique_ptr<ParkedStates> park_states(Runner& runner, const ServiceOptions& options) {
  if (!options.park.any() || !options.engine.prefix_cache || runner.model().pools()) return nullptr;
  return std::make_unique<ParkedStates>(options.park, park_mark(runner));
}

}  // namespace

// The engine's thread, and the queues through which other threads reach it.
class Service::Loop {
 public:
  Loop(Runner& runner, const ServiceOptions& options)
      : options_(options), runner_(runner), parked_(park_states(runner, options)), engine_(runner, engine_options()) {
    engine_.prepare_pace();
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = draining_ = true;
    }
    wake_.notify_all();
    thread_.join();
    runner_.finish_errands();
  }

  bool errand(std::function<void()> task) { return runner_.errand(std::move(task)); }

  RequestId submit(Request request, OnEmission on_emission) {
    const int32_t choices = request.choices;
    auto sequence = engine_.prepare(std::move(request));  // checks on the caller's thread
    const RequestId id = sequence->id();
    {
      const std::lock_guard lock(mutex_);
      if (draining_) fail(ErrorKind::Busy, "the server is shutting down");
      if (arrivals_.size() + queued_ >= options_.most_waiting)
        fail(ErrorKind::Busy, "{} requests wait already", options_.most_waiting);
      arrivals_.push_back({std::move(sequence), Stream{std::move(on_emission), std::vector<bool>(choices), choices}});
    }
    wake_.notify_all();
    return id;
  }

  void cancel(RequestId id, int32_t choice) {
    {
      const std::lock_guard lock(mutex_);
      cancels_.emplace_back(id, choice);
    }
    wake_.notify_all();
  }

  Runner& runner() { return runner_; }
  Engine& engine() { return engine_; }
  bool parks() const { return parked_ != nullptr; }

  // Runs the task on the engine's thread between two steps. Drops it if the service stops.
  void later(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      tasks_.push_back(std::move(task));
    }
    wake_.notify_all();
  }

  // The same, and waits for it.
  void between_steps(const std::function<void()>& task) {
    std::promise<void> done;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) fail(ErrorKind::Busy, "the server is shutting down");
      tasks_.push_back([&] {
        try {
          task();
          done.set_value();
        } catch (...) {
          done.set_exception(std::current_exception());
        }
      });
    }
    wake_.notify_all();
    done.get_future().get();
  }

  EngineStats stats() const {
    const std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.waiting += static_cast<int64_t>(arrivals_.size());
    if (Clock::now() - stats_time_ > std::chrono::seconds(2)) stats.tokens_per_second = 0;
    return stats;
  }

  std::string problem() const {
    const std::lock_guard lock(mutex_);
    return problem_;
  }

  bool drain(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    draining_ = true;
    const bool all_done = done_.wait_for(lock, patience, [&] { return idle_ && arrivals_.empty(); });
    if (all_done) return true;
    cancel_all_ = true;
    wake_.notify_all();
    done_.wait(lock, [&] { return idle_ && arrivals_.empty(); });
    return false;
  }

  bool draining() const {
    const std::lock_guard lock(mutex_);
    return draining_;
  }

 private:
  // The receiving end of a request.
  struct Stream {
    OnEmission on_emission;
    std::vector<bool> ended;  // indexed by choice
    int32_t open = 0;         // choices that have not ended

    void deliver(const Emission& emission) {
      if (emission.finish != FinishReason::None) {
        ended[static_cast<size_t>(emission.choice)] = true;
        --open;
      }
      on_emission(emission);
    }
  };

  struct Arrival {
    std::unique_ptr<Sequence> sequence;
    Stream stream;
  };

  void run() {
    while (wait_for_work()) {
      take_notes();
      try {
        engine_.step([&](const Emission& emission) { deliver(emission); }, [&] { take_arrivals(); });
      } catch (const std::exception& e) {  // out of memory or a bug: all streams must get an end
        log().error("a step failed: {}", e.what());
        if (runner_.lost()) note_problem(e.what());
        end_all(FinishReason::Error, e.what());
      }
      publish_stats();
    }
    take_notes();
    end_all(FinishReason::Cancelled);
    save_parked();
  }

  // A later process finds the state on disk.
  void save_parked() {
    if (parked_ == nullptr || !parked_->writes() || runner_.lost()) return;
    try {
      engine_.save_parked();
    } catch (const std::exception& e) {
      log().warn("parked sessions are lost: {}", e.what());
    }
  }

  EngineOptions engine_options() const {
    EngineOptions engine = options_.engine;
    engine.parked = parked_.get();
    return engine;
  }

  void note_problem(const std::string& problem) {
    const std::lock_guard lock(mutex_);
    problem_ = problem;
  }

  // False: the service stops.
  bool wait_for_work() {
    std::unique_lock lock(mutex_);
    const auto has_notes = [&] {
      return !arrivals_.empty() || !cancels_.empty() || !tasks_.empty() || cancel_all_ || stopping_;
    };
    if (streams_.empty() && !has_notes()) {
      publish_locked();
      idle_ = true;
      done_.notify_all();
      wake_.wait(lock, has_notes);
    }
    idle_ = false;
    return !stopping_;
  }

  // Takes arrivals and cancellations together, because a request may be cancelled right after its submission.
  void take_notes() {
    std::vector<std::pair<RequestId, int32_t>> cancels;
    std::vector<std::function<void()>> tasks;
    bool all = false;
    {
      const std::lock_guard lock(mutex_);
      take_arrivals_locked();
      cancels.swap(cancels_);
      tasks.swap(tasks_);
      all = std::exchange(cancel_all_, false);
    }
    submit_taken();
    for (const auto& [id, choice] : cancels) end(id, choice, FinishReason::Cancelled);
    if (all) end_all(FinishReason::Cancelled);
    for (const auto& task : tasks) task();  // after cancellations: a cancelled choice may be parked
  }

  void take_arrivals() {
    {
      const std::lock_guard lock(mutex_);
      take_arrivals_locked();
    }
    submit_taken();
  }

  void take_arrivals_locked() {
    taken_.swap(arrivals_);
    queued_ += taken_.size();
  }

  void submit_taken() {
    for (auto& arrival : taken_) {
      const RequestId id = arrival.sequence->id();
      streams_.emplace(id, std::move(arrival.stream));
      engine_.submit(std::move(arrival.sequence));
    }
    taken_.clear();
  }

  void end_all(FinishReason why, std::string_view error = {}) {
    while (!streams_.empty()) end(streams_.begin()->first, kAllChoices, why, error);
  }

  void end(RequestId id, int32_t choice, FinishReason why, std::string_view error = {}) {
    const auto found = streams_.find(id);
    if (found == streams_.end()) return;
    Stream& stream = found->second;
    const auto choices = static_cast<int32_t>(stream.ended.size());
    if (choice != kAllChoices && (choice < 0 || choice >= choices)) return;
    engine_.cancel(id, choice);
    for (int32_t c = 0; c < choices; ++c) {
      if (stream.ended[static_cast<size_t>(c)] || (choice != kAllChoices && choice != c)) continue;
      Emission emission{id, -1, why, nullptr};
      emission.choice = c;
      emission.error = error;
      stream.deliver(emission);
      ++ended_[why];
    }
    if (stream.open == 0) streams_.erase(found);
  }

  void deliver(const Emission& emission) {
    const auto found = streams_.find(emission.id);
    MR_ASSERT(found != streams_.end());
    found->second.deliver(emission);
    if (found->second.open == 0) streams_.erase(found);
  }

  void publish_stats() {
    const std::lock_guard lock(mutex_);
    queued_ = engine_.waiting();
    if (Clock::now() - stats_time_ >= kStatsPeriod) publish_locked();
  }

  void publish_locked() {
    queued_ = engine_.waiting();
    engine_.fill(stats_);
    for (const auto& [why, count] : ended_) stats_.finished[why] += count;
    stats_time_ = Clock::now();
    const double now = std::chrono::duration<double>(stats_time_.time_since_epoch()).count();
    stats_.tokens_per_second = rate_.per_second(now, stats_.generated_tokens);
    rate_.note(now, stats_.generated_tokens);
  }

  const ServiceOptions options_;
  Runner& runner_;
  const std::unique_ptr<ParkedStates> parked_;
  Engine engine_;

  // Used by the engine's thread only.
  std::unordered_map<RequestId, Stream> streams_;
  std::vector<Arrival> taken_;
  TokenRate rate_;
  std::map<FinishReason, uint64_t> ended_;  // ended by the service, not by the engine

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable wake_, done_;
  std::vector<Arrival> arrivals_;
  std::vector<std::pair<RequestId, int32_t>> cancels_;
  std::vector<std::function<void()>> tasks_;
  size_t queued_ = 0;  // waiting in the engine as of the last step
  bool draining_ = false, stopping_ = false, cancel_all_ = false, idle_ = false;
  std::string problem_;
  EngineStats stats_;
  Clock::time_point stats_time_{};

  std::thread thread_;
};

Service::Service(Runner& runner, const ServiceOptions& options) : loop_(std::make_unique<Loop>(runner, options)) {}
Service::~Service() = default;

RequestId Service::submit(Request request, OnEmission on_emission) {
  return loop_->submit(std::move(request), std::move(on_emission));
}
void Service::cancel(RequestId id, int32_t choice) { loop_->cancel(id, choice); }
bool Service::errand(std::function<void()> task) { return loop_->errand(std::move(task)); }

void Service::load_adapter(const std::string& name, const std::filesystem::path& path) {
  Rank& rank = loop_->runner().rank();
  const PackedAdapter packed = rank.read_adapter(path);
  loop_->between_steps([&] { rank.adapters().place(name, packed); });
}
bool Service::unload_adapter(const std::string& name) {
  Adapters& adapters = loop_->runner().rank().adapters();
  if (!adapters.remove(name)) return false;
  loop_->between_steps([&] { adapters.free_unused(); });
  return true;
}
std::shared_ptr<const Adapter> Service::find_adapter(std::string_view name) const {
  return loop_->runner().rank().adapters().find(name);
}
std::vector<std::shared_ptr<const Adapter>> Service::adapters() const {
  return loop_->runner().rank().adapters().all();
}

void Service::park(std::shared_ptr<const Adapter> adapter, std::vector<int32_t> tokens, std::vector<int32_t> before) {
  if (!loop_->parks()) return;
  loop_->later(
      [loop = loop_.get(), adapter = std::move(adapter), tokens = std::move(tokens), before = std::move(before)] {
        if (!before.empty()) loop->engine().forget_parked(adapter.get(), before);
        if (!tokens.empty()) loop->engine().park(adapter.get(), tokens);
      });
}
std::vector<ParkedStates::Found> Service::parked_places(std::span<const ParkedTokens> sessions) const {
  std::vector<ParkedStates::Found> found(sessions.size());
  if (sessions.empty() || !loop_->parks()) return found;
  loop_->between_steps([&] {
    for (size_t i = 0; i < sessions.size(); ++i)
      found[i] = loop_->engine().parked_place(sessions[i].adapter.get(), sessions[i].tokens);
  });
  return found;
}

EngineStats Service::stats() const { return loop_->stats(); }
std::string Service::problem() const { return loop_->problem(); }
bool Service::drain(std::chrono::milliseconds patience) { return loop_->drain(patience); }
bool Service::draining() const { return loop_->draining(); }

}  // namespace millrace
