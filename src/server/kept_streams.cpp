#include "server/kept_streams.h"

#include <algorithm>
#include <vector>

namespace millrace {

std::shared_ptr<KeptStream> KeptStreams::begin(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  drop_old();
  const auto running =
      std::count_if(streams_.begin(), streams_.end(), [](const auto& s) { return s.second->running(); });
  if (static_cast<size_t>(running) >= limits_.running) {
    throw ApiError({429, "too many background responses are running", "background", "rate_limit_exceeded"});
  }
  return std::make_shared<KeptStream>(limits_, workers_, owner);
}

void KeptStreams::keep(const std::string& id, std::shared_ptr<KeptStream> stream) {
  const std::lock_guard lock(mutex_);
  streams_.emplace(id, std::move(stream));
}

std::shared_ptr<KeptStream> KeptStreams::find(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  drop_old();
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second->owner() != owner) return nullptr;
  return found->second;
}

void KeptStreams::forget(const std::string& id) {
  const std::lock_guard lock(mutex_);
  streams_.erase(id);
}

size_t KeptStreams::size() {
  const std::lock_guard lock(mutex_);
  drop_old();
  return streams_.size();
}

void KeptStreams::drop_old() {
  std::vector<std::pair<KeptLimits::Clock::time_point, std::string>> ended;  // the longest unused first
  size_t bytes = 0;
  for (const auto& [id, stream] : streams_) {
    if (stream->running()) continue;
    ended.emplace_back(stream->last_used(), id);
    bytes += stream->bytes();
  }
  std::sort(ended.begin(), ended.end());
  size_t left = ended.size();
  for (const auto& [used, id] : ended) {
    if (limits_.now() - used <= limits_.kept && bytes <= limits_.all_bytes && left <= limits_.ended) return;
    bytes -= streams_[id]->bytes();
    --left;
    streams_.erase(id);
  }
}

}  // namespace millrace
