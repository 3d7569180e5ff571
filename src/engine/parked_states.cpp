#include "engine/parked_states.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"

namespace millrace {
namespace {

constexpr int64_t kMayWait = int64_t(64) << 20;  // bytes to be written, if less stays in memory

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int32_t in_common(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<int32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

int64_t bytes_of(const ParkedState& state) {
  return static_cast<int64_t>(state.saved.pages.size() + state.tokens.size() * sizeof(int32_t));
}

}  // namespace

ParkStats& ParkStats::operator+=(const ParkStats& other) {
  for (const auto field : {&ParkStats::pages, &ParkStats::in_memory, &ParkStats::memory_bytes, &ParkStats::on_disk,
                           &ParkStats::disk_bytes})
    this->*field += other.*field;
  for (const auto field : {&ParkStats::saved, &ParkStats::restored, &ParkStats::dropped}) this->*field += other.*field;
  return *this;
}

ParkedStates::ParkedStates(ParkLimits limits, const std::string& mark) : limits_(std::move(limits)) {
  if (!limits_.now) limits_.now = clock_seconds;
  if (limits_.folder.empty()) return;
  try {
    folder_.emplace(limits_.folder, mark);
    for (auto& file : folder_->find()) {
      Entry entry;
      entry.key.long_rope = file.long_rope;
      entry.bytes = file.bytes;
      entry.used = limits_.now() - file.age;
      entry.file = std::move(file);
      stats_.disk_bytes += entry.bytes;
      ++stats_.on_disk;
      entries_.push_front(std::move(entry));
    }
  } catch (const std::exception& e) {
    log().warn("{}; parked sessions do not use the disk", e.what());
    folder_.reset();
    return;
  }
  writer_ = std::thread([this] { run(); });
  const std::lock_guard lock(mutex_);
  expire();
  trim_disk();
}

ParkedStates::~ParkedStates() {
  if (!writer_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    limits_.memory = 0;
    trim_memory();
  }
  changed_.notify_all();
  writer_.join();
}

const std::vector<int32_t>& ParkedStates::tokens_of(const Entry& entry) {
  return entry.state != nullptr ? entry.state->tokens : entry.file->tokens;
}

int32_t ParkedStates::resumes_at(const Entry& entry, int32_t common) {
  if (entry.state != nullptr) return entry.state->saved.resumes_at(common);
  SavedPrefix saved;
  saved.tokens = static_cast<int32_t>(entry.file->tokens.size());
  saved.stops = entry.file->stops;
  return saved.resumes_at(common);
}

void ParkedStates::put(ParkedState state) {
  const std::lock_guard lock(mutex_);
  ++stats_.saved;
  erase_if([&](const Entry& entry) { return entry.key == state.key && tokens_of(entry) == state.tokens; });
  Entry entry;
  entry.key = state.key;
  entry.bytes = bytes_of(state);
  entry.used = limits_.now();
  entry.state = std::make_shared<const ParkedState>(std::move(state));
  stats_.memory_bytes += entry.bytes;
  ++stats_.in_memory;
  entries_.push_front(std::move(entry));
  expire();
  trim_memory();
}

ParkedStates::Entries::iterator ParkedStates::best(const PrefixKey& key, std::span<const int32_t> tokens,
                                                   int32_t& resumed) {
  auto found = entries_.end();
  resumed = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->key != key) continue;
    const int32_t at = resumes_at(*entry, in_common(tokens_of(*entry), tokens));
    if (at <= resumed) continue;
    resumed = at;
    found = entry;
  }
  return found;
}

ParkedStates::Found ParkedStates::find(const PrefixKey& key, std::span<const int32_t> tokens) {
  const std::lock_guard lock(mutex_);
  expire();
  Found found;
  const auto entry = best(key, tokens, found.tokens);
  if (entry == entries_.end()) return {};
  found.state = entry->state;
  found.place = entry->state != nullptr ? ParkPlace::Memory : ParkPlace::Disk;
  return found;
}

ParkedStates::Shared ParkedStates::fetch(const PrefixKey& key, std::span<const int32_t> tokens) {
  if (!folder_) return nullptr;
  ParkFolder::File file;
  {
    const std::lock_guard lock(mutex_);
    expire();
    int32_t resumed = 0;
    const auto entry = best(key, tokens, resumed);
    if (entry == entries_.end() || entry->state != nullptr || 2 * resumed < std::ssize(entry->file->tokens))
      return nullptr;
    file = *entry->file;
    entry->used = limits_.now();
    entries_.splice(entries_.begin(), entries_, entry);
  }
  std::optional<SavedPrefix> saved = folder_->read(file);
  if (saved) return std::make_shared<const ParkedState>(ParkedState{key, std::move(file.tokens), std::move(*saved)});
  const std::lock_guard lock(mutex_);
  erase_if([&](const Entry& entry) { return entry.file && entry.file->path == file.path; });
  ++stats_.dropped;
  return nullptr;
}

void ParkedStates::restored(const ParkedState& state, int32_t tokens) {
  const std::lock_guard lock(mutex_);
  ++stats_.restored;
  if (tokens < state.saved.tokens) return;
  erase_if([&](const Entry& entry) { return entry.key == state.key && tokens_of(entry) == state.tokens; });
}

void ParkedStates::forget(const PrefixKey& key, std::span<const int32_t> tokens) {
  constexpr size_t kUncomputed = 2;
  const std::lock_guard lock(mutex_);
  erase_if([&](const Entry& entry) {
    const auto& own = tokens_of(entry);
    return entry.key == key && own.size() <= tokens.size() && own.size() + kUncomputed >= tokens.size() &&
           in_common(own, tokens) == std::ssize(own);
  });
}

void ParkedStates::erase_if(const std::function<bool(const Entry&)>& which) {
  for (auto entry = entries_.begin(); entry != entries_.end();) entry = which(*entry) ? erase(entry) : std::next(entry);
}

ParkStats ParkedStates::stats() {
  const std::lock_guard lock(mutex_);
  expire();
  return stats_;
}

void ParkedStates::expire() {
  const double oldest = limits_.now() - limits_.seconds;
  while (!entries_.empty() && entries_.back().used < oldest) {
    erase(std::prev(entries_.end()));
    ++stats_.dropped;
  }
}

void ParkedStates::trim_memory() {
  for (auto entry = entries_.end();
       stats_.memory_bytes - writing_bytes_ > limits_.memory && entry != entries_.begin();) {
    --entry;
    if (entry->state == nullptr || entry->writing) continue;
    // An adapter's weights have no mark, so its states do not outlive the process. A disk that is too slow for what
    // waits gets no more.
    const bool waits_long = writing_bytes_ > 0 && writing_bytes_ + entry->bytes > std::max(limits_.memory, kMayWait);
    const bool written =
        folder_ && entry->key.adapter.empty() && entry->bytes <= limits_.disk && (stopping_ || !waits_long);
    if (written) {
      write_later(*entry);
    } else {
      entry = erase(entry);
      ++stats_.dropped;
    }
  }
}

void ParkedStates::trim_disk() {
  for (auto entry = entries_.end(); stats_.disk_bytes > limits_.disk && entry != entries_.begin();) {
    --entry;
    if (entry->state != nullptr) continue;
    entry = erase(entry);
    ++stats_.dropped;
  }
}

void ParkedStates::write_later(Entry& entry) {
  entry.writing = true;
  writing_bytes_ += entry.bytes;
  post([this, state = entry.state] { write(state); });
}

// Keeps the counters; the caller counts what was dropped.
ParkedStates::Entries::iterator ParkedStates::erase(Entries::iterator entry) {
  if (entry->state != nullptr) {
    stats_.memory_bytes -= entry->bytes;
    --stats_.in_memory;
    if (entry->writing) writing_bytes_ -= entry->bytes;
  } else {
    stats_.disk_bytes -= entry->bytes;
    --stats_.on_disk;
    post([file = std::move(*entry->file)] { ParkFolder::remove(file); });
  }
  return entries_.erase(entry);
}

void ParkedStates::post(std::function<void()> task) {
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

// On the writer's thread, without the lock.
void ParkedStates::write(const Shared& state) {
  std::optional<ParkFolder::File> file;
  try {
    file = folder_->write(state->key.long_rope, state->tokens, state->saved);
  } catch (const std::exception& e) {
    log().warn("a parked session is dropped and will be computed again: {}", e.what());
  }
  const std::lock_guard lock(mutex_);
  const auto entry = std::ranges::find(entries_, state, &Entry::state);
  if (entry == entries_.end()) {  // taken or dropped meanwhile
    if (file) ParkFolder::remove(*file);
    return;
  }
  if (!file) {
    erase(entry);
    ++stats_.dropped;
    return;
  }
  stats_.memory_bytes -= entry->bytes;
  --stats_.in_memory;
  writing_bytes_ -= entry->bytes;
  entry->writing = false;
  entry->state = nullptr;
  entry->bytes = file->bytes;
  entry->file = std::move(file);
  stats_.disk_bytes += entry->bytes;
  ++stats_.on_disk;
  trim_disk();
}

void ParkedStates::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    task();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void ParkedStates::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tasks_.empty() && !busy_; });
}

}  // namespace millrace
