// A small thread pool with a FIFO queue. JSON, templates and tokenization run here, off the I/O thread and the
// engine's.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace {

class TaskQueue {
 public:
  explicit TaskQueue(int threads);
  ~TaskQueue();  // runs all queued tasks first
  TaskQueue(const TaskQueue&) = delete;

  void post(std::function<void()> task);  // from any thread; the task must not throw

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace millrace
