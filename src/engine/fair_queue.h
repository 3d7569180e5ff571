// Who goes next among those that wait. Clients share by the tokens computed for them, not by requests: each has a
// virtual time that grows with what it used, and the one that used least goes first (start-time fair queueing).
// Priorities go before that, and waiting raises them, so that nobody starves.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/sequence.h"

namespace millrace {

class FairQueue {
 public:
  void push(std::unique_ptr<Sequence> sequence);  // one that was running before is still the oldest of its client

  // Who goes next; null: nobody waits. `now` in seconds on the clock of Sequence::arrival().
  Sequence* next(double now);
  std::unique_ptr<Sequence> take(Sequence* sequence);  // one that next() gave

  // Tokens that were computed for a client, wherever they were computed.
  void charge(const std::string& client, double tokens);

  void erase_if(const std::function<bool(Sequence&)>& condition);
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t clients() const { return clients_.size(); }  // that it remembers

  static constexpr double kSecondsPerLevel = 20;  // of waiting that raise a priority by one

 private:
  struct Client {
    double used = 0;  // virtual time
    std::vector<std::unique_ptr<Sequence>> waiting;
  };
  void forget_idle();

  std::map<std::string, Client> clients_;
  double now_used_ = 0;  // virtual time of the client served last: those who come back from idling start there
  size_t size_ = 0;
};

}  // namespace millrace
