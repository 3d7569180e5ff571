// The events of a background response. The generation writes them to a KeptStream as to any connection; clients read
// them from any event on, while the response runs and for some time afterwards.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/call.h"
#include "server/http/http.h"
#include "server/response_output.h"

namespace millrace {

class TaskQueue;

struct KeptLimits {
  using Clock = std::chrono::steady_clock;

  size_t stream_bytes = size_t{16} << 20;  // a longer stream goes on, but can no longer be read from its beginning
  size_t all_bytes = size_t{128} << 20;    // of streams that have ended
  size_t running = 32, ended = 256;
  std::chrono::seconds kept{600};        // after the end
  std::chrono::seconds unattended{600};  // a running response that no client reads or asks for is cancelled after this
  std::function<Clock::time_point()> now = Clock::now;
};

class KeptStream final : public HttpConnection, public std::enable_shared_from_this<KeptStream> {
 public:
  KeptStream(const KeptLimits& limits, TaskQueue& workers, std::string owner);

  // The generation's call; cancelling marks its client as gone.
  void belongs_to(const std::shared_ptr<Call>& call) { call_ = call; }

  // The generation's side. Tasks run on workers: the engine's thread posts while it holds the generation's lock.
  void post(std::function<void()> task) override;
  bool write_now(std::string_view bytes) override;
  void answer(HttpReply reply) override;
  void begin_stream(HttpReply) override {}
  void write(std::string bytes) override { write_now(bytes); }
  void end_stream() override;

  // The clients' side. Sends all events from number `first` on, also those to come. Throws ApiError if they are gone.
  void attach(const std::shared_ptr<Call>& reader, size_t first);
  Json begun();     // the response as its first event has it
  Json response();  // as of now
  void cancel();    // the last event has the output and the usage so far

  const std::string& owner() const { return owner_; }
  bool running() const;
  size_t bytes() const;
  KeptLimits::Clock::time_point last_used() const;

 private:
  void append(std::string_view events);  // these five hold the lock
  bool is_unattended() const;
  void end_cancelled();
  void end_readers();
  void require_events(size_t first) const;
  void detach(const Call* reader);

  const KeptLimits& limits_;
  TaskQueue& workers_;
  std::string owner_;
  std::weak_ptr<Call> call_;

  mutable std::mutex mutex_;  // guards the members below
  bool running_ = true;
  std::vector<std::string> events_;  // by sequence number
  size_t count_ = 0;                 // of all events
  std::string first_, last_;         // first and last event, also of a stream that became too long
  ResponseOutput output_;            // so far
  Usage usage_;                      // at the last event; the call's own grows on another thread
  bool too_long_ = false;
  size_t bytes_ = 0;
  std::vector<std::shared_ptr<Call>> readers_;
  KeptLimits::Clock::time_point attended_;
};

// Events as text; adjacent deltas of one text become one event with the last one's number, so that a long replay stays
// within the bytes that a connection may have unread.
std::string joined_events(const std::vector<std::string>& events);

}  // namespace millrace
