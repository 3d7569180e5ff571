#include "server/kept_stream.h"

#include <algorithm>

#include "server/answer_json.h"
#include "server/task_queue.h"

namespace millrace {
namespace {

constexpr std::string_view kData = "data: ";

Json event_json(const std::string& event) {
  const size_t at = event.find(kData);
  return at == std::string::npos ? Json() : Json::parse(event.substr(at + kData.size()), nullptr, false);
}

Json response_of(const Json& event) {
  return event.is_object() && event.contains("response") ? event["response"] : Json::object();
}

// Whether `b` continues the text of `a`.
bool continues(const Json& a, const Json& b) {
  if (!a.is_object() || !b.is_object() || !a.contains("delta") || !b.contains("delta")) return false;
  return a["type"] == b["type"] && a["item_id"] == b["item_id"];
}

}  // namespace

std::string joined_events(const std::vector<std::string>& events) {
  std::string text;
  Json held;
  const auto flush = [&] {
    if (!held.is_null()) text += fmt::format("event: {}\ndata: {}\n\n", held["type"].get<std::string>(), to_text(held));
    held = Json();
  };
  for (const std::string& event : events) {
    Json json = event_json(event);
    if (!held.is_null() && continues(held, json)) {
      json["delta"] = held["delta"].get<std::string>() + json["delta"].get<std::string>();
      if (json.contains("logprobs") && held.contains("logprobs")) {
        Json logprobs = std::move(held["logprobs"]);
        logprobs.insert(logprobs.end(), json["logprobs"].begin(), json["logprobs"].end());
        json["logprobs"] = std::move(logprobs);
      }
      held = std::move(json);
      continue;
    }
    flush();
    if (json.is_object() && json.contains("delta")) {
      held = std::move(json);
    } else {
      text += event;
    }
  }
  flush();
  return text;
}

KeptStream::KeptStream(const KeptLimits& limits, TaskQueue& workers, std::string owner)
    : limits_(limits), workers_(workers), owner_(std::move(owner)), attended_(limits.now()) {}

// A generation that was cancelled may end after the workers were stopped.
void KeptStream::post(std::function<void()> task) {
  if (running()) workers_.post(std::move(task));
}

bool KeptStream::write_now(std::string_view bytes) {
  bool unattended = false;
  const auto call = call_.lock();
  {
    const std::lock_guard lock(mutex_);
    if (!running_) return true;
    if (call) usage_ = call->usage;
    append(bytes);
    unattended = is_unattended();
  }
  if (unattended) cancel();
  return true;
}

bool KeptStream::is_unattended() const { return readers_.empty() && limits_.now() - attended_ > limits_.unattended; }

void KeptStream::append(std::string_view events) {
  while (!events.empty()) {
    const size_t end = events.find("\n\n");
    const std::string_view event = events.substr(0, end == std::string_view::npos ? events.size() : end + 2);
    events.remove_prefix(event.size());
    last_ = event;
    if (first_.empty()) first_ = event;
    ++count_;
    output_.add(event_json(last_));
    bytes_ += event.size();
    if (bytes_ > limits_.stream_bytes && !too_long_) {
      too_long_ = true;
      events_.clear();
    }
    if (!too_long_) events_.emplace_back(event);
    for (const auto& reader : readers_) reader->relay(event);
  }
}

// The generation failed before its first event, or was given up: its client is gone.
void KeptStream::answer(HttpReply reply) {
  const std::lock_guard lock(mutex_);
  if (!running_) return;
  if (reply.body.empty()) return end_cancelled();
  append("data: " + reply.body + "\n\n");
  end_readers();
}

void KeptStream::end_stream() {
  const std::lock_guard lock(mutex_);
  if (running_) end_readers();
}

void KeptStream::end_cancelled() {
  Json response = response_of(event_json(first_));
  response["status"] = "cancelled";
  response["output"] = output_.stopped();
  response["usage"] = response_usage_json(usage_);
  const Json event{{"type", "response.cancelled"}, {"sequence_number", count_}, {"response", std::move(response)}};
  append("event: response.cancelled\ndata: " + to_text(event) + "\n\n");
  end_readers();
}

void KeptStream::end_readers() {
  running_ = false;
  output_ = {};
  attended_ = limits_.now();
  for (const auto& reader : readers_) reader->end_events();
  readers_.clear();
}

void KeptStream::require_events(size_t first) const {
  if (too_long_)
    throw ApiError({409, "this response became too long to be read again from its events", "", "too_long"});
  if (first > events_.size()) {
    throw ApiError({400, "the response has no such event yet", "starting_after", "invalid_value"});
  }
}

void KeptStream::attach(const std::shared_ptr<Call>& reader, size_t first) {
  constexpr size_t kFewBytes = size_t{128} << 10;
  std::unique_lock lock(mutex_);
  require_events(first);
  reader->begin_events();
  while (true) {
    const std::vector<std::string> events(events_.begin() + static_cast<long>(std::min(first, events_.size())),
                                          events_.end());
    size_t bytes = 0;
    for (const auto& event : events) bytes += event.size();
    const bool few = bytes < kFewBytes;
    first += events.size();
    if (!few) lock.unlock();  // joining takes time, and the generation must not wait
    std::string text;
    if (few) {
      for (const auto& event : events) text += event;
    } else {
      text = joined_events(events);
    }
    reader->relay(text);
    if (few) break;
    lock.lock();
  }
  attended_ = limits_.now();
  if (!running_) return reader->end_events();
  readers_.push_back(reader);
  lock.unlock();
  reader->exchange().on_gone([weak = weak_from_this(), call = reader.get()] {
    if (const auto self = weak.lock()) self->detach(call);
  });
}

void KeptStream::detach(const Call* reader) {
  std::vector<std::shared_ptr<Call>> left;  // freed after the lock
  const std::lock_guard lock(mutex_);
  const auto gone =
      std::stable_partition(readers_.begin(), readers_.end(), [&](const auto& one) { return one.get() != reader; });
  left.assign(gone, readers_.end());
  readers_.erase(gone, readers_.end());
  attended_ = limits_.now();
}

Json KeptStream::begun() {
  {
    const std::lock_guard lock(mutex_);
    if (Json response = response_of(event_json(first_)); !response.empty()) return response;
  }
  return response();
}

Json KeptStream::response() {
  const std::lock_guard lock(mutex_);
  attended_ = limits_.now();
  Json last = event_json(last_);
  if (Json ended = response_of(last); !running_ && !ended.empty()) return ended;
  Json response = response_of(event_json(first_));
  if (running_) return response;
  response["status"] = "failed";
  if (last.is_object() && last.contains("error")) {
    response["error"] = {{"code", "server_error"}, {"message", last["error"].value("message", "")}};
  }
  return response;
}

void KeptStream::cancel() {
  {
    const std::lock_guard lock(mutex_);
    if (!running_) return;
    end_cancelled();
  }
  if (const auto call = call_.lock()) call->exchange().mark_gone();
}

bool KeptStream::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

size_t KeptStream::bytes() const {
  const std::lock_guard lock(mutex_);
  return too_long_ ? first_.size() + last_.size() : bytes_;
}

KeptLimits::Clock::time_point KeptStream::last_used() const {
  const std::lock_guard lock(mutex_);
  return attended_;
}

}  // namespace millrace
