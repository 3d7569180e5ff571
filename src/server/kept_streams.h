// All background responses of a server, by id. Only the holder of the API key that began a response finds it; without
// API keys, the random id alone protects it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "server/kept_stream.h"

namespace millrace {

class KeptStreams {
 public:
  explicit KeptStreams(TaskQueue& workers, KeptLimits limits = {}) : workers_(workers), limits_(std::move(limits)) {}
  KeptStreams(const KeptStreams&) = delete;

  // Throws ApiError 429 if too many run.
  std::shared_ptr<KeptStream> begin(const std::string& owner);
  void keep(const std::string& id, std::shared_ptr<KeptStream> stream);
  std::shared_ptr<KeptStream> find(const std::string& id, const std::string& owner);  // null: none
  void forget(const std::string& id);
  size_t size();

 private:
  void drop_old();  // holds the lock

  TaskQueue& workers_;
  const KeptLimits limits_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<KeptStream>> streams_;
};

}  // namespace millrace
