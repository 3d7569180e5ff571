// State of parked sessions that has left the device: in memory, then on disk. The state that was used last stays the
// longest; one that no limit allows is dropped and computed again.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cache/prefix_tree.h"
#include "engine/park_folder.h"
#include "engine/saved_prefix.h"

namespace millrace {

struct ParkLimits {
  int64_t memory = 0;            // bytes; as many again may wait to be written to disk
  std::filesystem::path folder;  // empty: no disk
  int64_t disk = 0;              // bytes
  double seconds = 3600;         // a state that was not used for so long is dropped
  std::function<double()> now;   // in seconds; null: the clock

  bool any() const { return memory > 0 || !folder.empty(); }
};

struct ParkStats {
  int64_t pages = 0;  // on the device: last pages of parked sessions
  int64_t in_memory = 0, memory_bytes = 0;
  int64_t on_disk = 0, disk_bytes = 0;
  uint64_t saved = 0, restored = 0, dropped = 0;  // totals since the start

  ParkStats& operator+=(const ParkStats& other);
};

enum class ParkPlace : uint8_t { None, Device, Memory, Disk };

// A state and its tokens, out of the device.
struct ParkedState {
  PrefixKey key;
  std::vector<int32_t> tokens;
  SavedPrefix saved;
};

// Any thread may call any function. The disk is used by fetch(), on its caller's thread, and by a thread of its own.
class ParkedStates {
 public:
  using Shared = std::shared_ptr<const ParkedState>;

  // `mark`: of the model and the layout of its state. A folder that cannot be used is said in the log and not used.
  ParkedStates(ParkLimits limits, const std::string& mark);
  ~ParkedStates();  // moves to disk what memory holds
  ParkedStates(const ParkedStates&) = delete;

  void put(ParkedState state);

  struct Found {
    Shared state;        // null: on disk, or none
    int32_t tokens = 0;  // so many of the first tokens need not be computed
    ParkPlace place = ParkPlace::None;
  };
  // The state from which the most tokens can be resumed.
  Found find(const PrefixKey& key, std::span<const int32_t> tokens);
  // Reads that state from disk. Null: it is in memory, or there is none, or less than half of its tokens are wanted: a
  // system prompt that many sessions share is on the device.
  Shared fetch(const PrefixKey& key, std::span<const int32_t> tokens);
  // `tokens` of the state are on the device again. A state that is there as a whole is forgotten.
  void restored(const ParkedState& state, int32_t tokens);
  // The session of these tokens has gone on. Its last tokens were perhaps never computed.
  void forget(const PrefixKey& key, std::span<const int32_t> tokens);

  bool writes() const { return folder_.has_value(); }
  ParkStats stats();
  void settle();  // for tests: waits until no write is under way

 private:
  struct Entry {
    Shared state;                          // null: on disk
    std::optional<ParkFolder::File> file;  // with `state`: it is being written, or none yet
    PrefixKey key;
    int64_t bytes = 0;
    double used = 0;
    bool writing = false;
  };
  using Entries = std::list<Entry>;  // most recently used first

  static const std::vector<int32_t>& tokens_of(const Entry& entry);
  static int32_t resumes_at(const Entry& entry, int32_t common);
  Entries::iterator best(const PrefixKey& key, std::span<const int32_t> tokens, int32_t& resumed);
  void erase_if(const std::function<bool(const Entry&)>& which);
  void expire();
  void trim_memory();
  void trim_disk();
  void write_later(Entry& entry);
  Entries::iterator erase(Entries::iterator entry);
  void post(std::function<void()> task);
  void write(const Shared& state);
  void run();

  ParkLimits limits_;
  std::optional<ParkFolder> folder_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  Entries entries_;
  ParkStats stats_;
  int64_t writing_bytes_ = 0;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false, stopping_ = false;
  std::thread writer_;
};

}  // namespace millrace
