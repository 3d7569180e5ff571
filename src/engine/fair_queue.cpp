#include "engine/fair_queue.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/error.h"

namespace millrace {
namespace {

constexpr size_t kMostRemembered = 1024;

}  // namespace

void FairQueue::push(std::unique_ptr<Sequence> sequence) {
  Client& client = clients_[sequence->client()];
  // Idling earns nothing: a client that comes back starts level with the one being served.
  if (client.waiting.empty()) client.used = std::max(client.used, now_used_);
  client.waiting.push_back(std::move(sequence));
  ++size_;
}

// Nobody rises above the highest priority that waits: there, what clients have used decides.
Sequence* FairQueue::next(double now) {
  int highest = std::numeric_limits<int>::min();
  for (const auto& [name, client] : clients_) {
    for (const auto& sequence : client.waiting) highest = std::max(highest, sequence->priority());
  }
  Sequence* best = nullptr;
  std::tuple<double, double, double> best_key;  // urgency, what the client used, when it came
  for (auto& [name, client] : clients_) {
    for (auto& sequence : client.waiting) {
      const double risen = sequence->priority() + std::floor((now - sequence->arrival()) / kSecondsPerLevel);
      const std::tuple key(-std::min<double>(highest, risen), client.used, sequence->arrival());
      if (best != nullptr && !(key < best_key)) continue;
      best = sequence.get();
      best_key = key;
    }
  }
  return best;
}

std::unique_ptr<Sequence> FairQueue::take(Sequence* sequence) {
  Client& client = clients_.at(sequence->client());
  const auto at = std::find_if(client.waiting.begin(), client.waiting.end(),
                               [&](const auto& waiting) { return waiting.get() == sequence; });
  MR_ASSERT(at != client.waiting.end());
  auto taken = std::move(*at);
  client.waiting.erase(at);
  --size_;
  now_used_ = std::max(now_used_, client.used);
  forget_idle();
  return taken;
}

void FairQueue::charge(const std::string& client, double tokens) { clients_[client].used += tokens; }

void FairQueue::erase_if(const std::function<bool(Sequence&)>& condition) {
  for (auto& [name, client] : clients_) {
    size_ -= std::erase_if(client.waiting, [&](const auto& sequence) { return condition(*sequence); });
  }
}

// Names come from outside, without end. Those who wait for nothing start level with the others when they come back;
// that forgives them what they used, which is why few clients are all remembered.
void FairQueue::forget_idle() {
  if (clients_.size() < kMostRemembered) return;
  std::erase_if(clients_, [](const auto& entry) { return entry.second.waiting.empty(); });
}

}  // namespace millrace
