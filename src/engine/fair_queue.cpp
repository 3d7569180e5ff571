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
  // Idle time earns no credit: a returning client starts level with the one being served.
  if (client.waiting.empty()) client.used = std::max(client.used, now_used_);
  client.waiting.push_back(std::move(sequence));
  ++size_;
}

// Priorities rise at most to the highest one in the queue; among equal priorities virtual time decides.
Sequence* FairQueue::next(double now) {
  int highest = std::numeric_limits<int>::min();
  for (const auto& [name, client] : clients_) {
    for (const auto& sequence : client.waiting) highest = std::max(highest, sequence->priority());
  }
  Sequence* best = nullptr;
  std::tuple<double, double, double> best_key;  // urgency, virtual time, arrival
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

// Client names come from outside and are unbounded in number. A forgotten client starts level when it returns, which
// forgives its use, so clients are forgotten only when there are many.
void FairQueue::forget_idle() {
  if (clients_.size() < kMostRemembered) return;
  std::erase_if(clients_, [](const auto& entry) { return entry.second.waiting.empty(); });
}

}  // namespace millrace
