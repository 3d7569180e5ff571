// A transport controlled by a test: the test feeds bytes, the session's writes are kept, and nothing happens before
// run().
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "server/http/http_transport.h"

namespace millrace {

// The test's side of a transport that the session owns.
struct FakeWire {
  std::string in, out;
  bool in_ended = false, stalled = false, finished = false, closed = false;
  bool at_once = false, left = false;  // at_once: other threads may write directly; left: the peer has closed
  size_t write_at_most = 1 << 20, read_at_most = 1 << 20;
  std::deque<std::function<void()>> tasks;
  std::span<char> into;
  HttpTransport::Done reading;

  void run() {
    while (true) {
      if (reading && !closed && (!in.empty() || in_ended)) deliver();
      if (tasks.empty()) return;
      auto task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
  }

 private:
  void deliver() {
    const size_t n = std::min({in.size(), into.size(), read_at_most});
    std::copy_n(in.data(), n, into.data());
    in.erase(0, n);
    tasks.emplace_back([done = std::exchange(reading, nullptr), n] { done(n > 0, n); });
  }
};

class FakeTransport final : public HttpTransport {
 public:
  explicit FakeTransport(std::shared_ptr<FakeWire> wire) : wire_(std::move(wire)) {}

  void start(Done done) override { done(true, 0); }
  void read(std::span<char> into, Done done) override {
    wire_->into = into;
    wire_->reading = std::move(done);
  }
  void write(std::string_view from, Done done) override {
    if (wire_->stalled) return;
    const size_t n = std::min(from.size(), wire_->write_at_most);
    wire_->out += from.substr(0, n);
    wire_->tasks.emplace_back([done = std::move(done), n] { done(true, n); });
  }
  std::optional<Written> write_now(std::string_view from) override {
    if (!wire_->at_once) return std::nullopt;
    if (wire_->left) return Written{false, 0};
    const size_t n = wire_->stalled ? 0 : std::min(from.size(), wire_->write_at_most);
    wire_->out += from.substr(0, n);
    return Written{true, n};
  }
  void finish(Done done) override {
    wire_->finished = true;
    done(true, 0);
  }
  void close() override {
    wire_->closed = true;
    wire_->reading = nullptr;
  }
  void post(std::function<void()> task) override { wire_->tasks.push_back(std::move(task)); }

 private:
  std::shared_ptr<FakeWire> wire_;
};

}  // namespace millrace
