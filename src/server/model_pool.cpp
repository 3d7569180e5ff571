#include "server/model_pool.h"

#include <algorithm>

#include "base/error.h"
#include "engine/memory_plan.h"

namespace millrace {
namespace {

using State = ModelTable::State;
using Calls = std::vector<std::function<void()>>;

// Takes the functions, so that the leases in them end here: a lease that ends takes the pool's lock.
void run_all(Calls calls) {
  for (const auto& call : calls) call();
}

}  // namespace

ModelPool::ModelPool(std::vector<Member> members, const Options& options, OnEvent on_event)
    : members_(std::move(members)),
      options_(options),
      on_event_(std::move(on_event)),
      shared_(std::make_shared<Shared>(members_.size())),
      slots_(members_.size()) {
  for (size_t i = 0; i < members_.size(); ++i) {
    slots_[i].model = members_[i].make();
    if (!members_[i].problem.empty()) shared_->table.failed(i, members_[i].problem);
  }
  loader_ = std::thread([this] { run_loads(); });
  watch_ = std::thread([this] { watch_deadlines(); });
}

ModelPool::~ModelPool() {
  close();
  join();
}

void ModelPool::join() {
  if (loader_.joinable()) loader_.join();
  if (watch_.joinable()) watch_.join();
}

std::optional<size_t> ModelPool::find(std::string_view name) const {
  for (size_t i = 0; i < members_.size(); ++i) {
    const auto& names = members_[i].names;
    if (std::find(names.begin(), names.end(), name) != names.end()) return i;
  }
  return std::nullopt;
}

ModelPool::Lease ModelPool::lease(size_t model) {
  // The last copy may be destroyed on the engine's thread of this very model, so the deleter must not unload it. A
  // lease owns nothing of the model: its engine holds the requests that hold the leases.
  return {slots_[model].model.get(), [shared = shared_, model](PooledModel*) {
            {
              const std::lock_guard lock(shared->mutex);
              shared->table.release(model);
            }
            shared->changed.notify_all();
          }};
}

void ModelPool::acquire(size_t model, OnReady ready, OnRefused refused) {
  std::unique_lock lock(shared_->mutex);
  if (closed_) {
    lock.unlock();
    return refused(Refusal::Closed, "");
  }
  if (shared_->table.take(model)) {
    Lease held = lease(model);
    lock.unlock();
    return ready(std::move(held));
  }
  if (waiting_.size() >= options_.most_waiting) {
    lock.unlock();
    return refused(Refusal::Busy, "");
  }
  slots_[model].asked = true;
  waiting_.push_back({model, Clock::now() + options_.patience, std::move(ready), std::move(refused)});
  lock.unlock();
  shared_->changed.notify_all();
}

void ModelPool::preload(size_t model) {
  {
    const std::lock_guard lock(shared_->mutex);
    slots_[model].preload = true;
  }
  shared_->changed.notify_all();
}

ModelTable::Row ModelPool::status(size_t model) const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->table.row(model);
}

std::shared_ptr<PooledModel> ModelPool::peek(size_t model) const {
  const std::lock_guard lock(shared_->mutex);
  return slots_[model].model;
}

size_t ModelPool::last_used() const {
  const std::lock_guard lock(shared_->mutex);
  size_t last = 0;
  uint64_t used = 0;
  for (size_t i = 0; i < members_.size(); ++i) {
    const ModelTable::Row& row = shared_->table.row(i);
    if (row.state != State::Loaded || row.used < used) continue;
    last = i;
    used = row.used;
  }
  return last;
}

void ModelPool::close() {
  Calls calls;
  {
    const std::lock_guard lock(shared_->mutex);
    closed_ = true;
    calls = refuse([](const Waiting&) { return true; }, Refusal::Closed, "");
  }
  shared_->changed.notify_all();
  run_all(std::move(calls));
}

bool ModelPool::closed() const {
  const std::lock_guard lock(shared_->mutex);
  return closed_;
}

Calls ModelPool::hand_out() {
  Calls calls;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (shared_->table.take(it->model)) {
      calls.emplace_back([ready = std::move(it->ready), held = lease(it->model)] { ready(held); });
      it = waiting_.erase(it);
    } else {
      ++it;
    }
  }
  return calls;
}

Calls ModelPool::refuse(const std::function<bool(const Waiting&)>& which, Refusal why, const std::string& problem) {
  Calls calls;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (which(*it)) {
      calls.emplace_back([refused = std::move(it->refused), why, problem] { refused(why, problem); });
      it = waiting_.erase(it);
    } else {
      ++it;
    }
  }
  return calls;
}

bool ModelPool::wanted(size_t model) const {
  return slots_[model].preload ||
         std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) { return waiting.model == model; });
}

std::optional<size_t> ModelPool::next_to_load() const {
  const auto unloaded = [&](size_t model) { return shared_->table.row(model).state == State::Unloaded; };
  for (const Waiting& waiting : waiting_) {
    if (unloaded(waiting.model)) return waiting.model;
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    if ((slots_[i].preload || slots_[i].asked) && unloaded(i)) return i;
  }
  return std::nullopt;
}

void ModelPool::run_loads() {
  std::unique_lock lock(shared_->mutex);
  while (!closed_) {
    if (const auto model = next_to_load()) {
      load(*model, lock);
    } else {
      shared_->changed.wait(lock);
    }
  }
}

void ModelPool::load(size_t model, std::unique_lock<std::mutex>& lock) {
  const auto begun = Clock::now();
  Slot& slot = slots_[model];
  shared_->table.begin_load(model);
  slot.asked = false;
  if (std::exchange(slot.spent, true)) slot.model = members_[model].make();
  const std::shared_ptr<PooledModel> object = slot.model;
  lock.unlock();
  std::string problem;
  bool given_up = false;
  try {
    object->load([&](int64_t bytes, int64_t available) { return make_room(model, bytes, available); });
  } catch (const Error& e) {
    problem = e.what();
    given_up = e.kind() == ErrorKind::Cancelled;
  } catch (const std::exception& e) {
    problem = e.what();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  const bool good = problem.empty();
  if (!given_up) on_event_({good ? Event::Loaded : Event::Failed, model, seconds, problem});
  lock.lock();
  slot.preload = false;
  Calls refusals;
  if (good) {
    shared_->table.loaded(model);
  } else {
    shared_->table.failed(model, given_up ? "" : problem);
    if (!given_up) {
      refusals = refuse([&](const Waiting& waiting) { return waiting.model == model; }, Refusal::Failed, problem);
    }
  }
  Calls answers = hand_out();
  lock.unlock();
  run_all(std::move(refusals));
  run_all(std::move(answers));
  lock.lock();
}

bool ModelPool::make_room(size_t model, int64_t bytes, int64_t available) {
  std::unique_lock lock(shared_->mutex);
  const bool given = options_.memory > 0;
  const int64_t limit = given ? options_.memory : shared_->table.held() + available;
  bool evicted = false;
  while (true) {
    if (closed_) fail(ErrorKind::Cancelled, "the server is shutting down");
    size_t victim = 0;
    switch (shared_->table.reserve(model, bytes, limit, victim)) {
      case ModelTable::Room::Granted: {
        Calls calls = hand_out();  // for a model that was to be unloaded and may stay
        lock.unlock();
        run_all(std::move(calls));
        return evicted;
      }
      case ModelTable::Room::TooLarge:
        if (!given) return evicted;  // loading refuses it and shows the memory plan
        fail(ErrorKind::OutOfMemory, "{} needs {} and --models-memory allows {}", members_[model].names.front(),
             human_bytes(bytes), human_bytes(limit));
      case ModelTable::Room::Evict:
        unload(victim, lock);
        evicted = true;
        break;
      case ModelTable::Room::Wait:
        if (!wanted(model)) fail(ErrorKind::Cancelled, "no request waits for it any more");
        shared_->changed.wait(lock);
        break;
    }
  }
}

void ModelPool::unload(size_t model, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  on_event_({Event::Unloading, model});
  lock.lock();
  std::shared_ptr<PooledModel> object = std::move(slots_[model].model);
  slots_[model] = {members_[model].make()};
  lock.unlock();
  object.reset();
  lock.lock();
  shared_->table.unloaded(model);
}

void ModelPool::watch_deadlines() {
  std::unique_lock lock(shared_->mutex);
  while (!closed_) {
    if (waiting_.empty()) {
      shared_->changed.wait(lock);
      continue;
    }
    // Requests arrive in order and wait equally long, so the first one ends first.
    const auto until = waiting_.front().until;  // a copy: the request may go while this waits
    shared_->changed.wait_until(lock, until);
    const auto now = Clock::now();
    Calls calls = refuse([&](const Waiting& waiting) { return waiting.until <= now; }, Refusal::Loading, "");
    if (calls.empty()) continue;
    lock.unlock();
    shared_->changed.notify_all();  // a load that waits for memory may have lost its last request
    run_all(std::move(calls));
    lock.lock();
  }
}

}  // namespace millrace
