// Orders waiting sequences. Each client has a virtual time that grows with the tokens computed for it, and the client
// with the smallest goes first (start-time fair queueing). Priorities go before virtual time. Waiting raises the
// priority, so that no request starves.
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
  void push(std::unique_ptr<Sequence> sequence);  // a preempted sequence becomes the oldest of its client again

  // The next sequence; null: the queue is empty. `now`: seconds on the clock of Sequence::arrival().
  Sequence* next(double now);
  std::unique_ptr<Sequence> take(Sequence* sequence);  // removes a sequence that next() returned

  // Adds tokens to the client's virtual time.
  void charge(const std::string& client, double tokens);

  void erase_if(const std::function<bool(Sequence&)>& condition);
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t clients() const { return clients_.size(); }  // clients with an entry, idle ones included

  static constexpr double kSecondsPerLevel = 20;  // waiting time that raises the priority by one

 private:
  struct Client {
    double used = 0;  // virtual time
    std::vector<std::unique_ptr<Sequence>> waiting;
  };
  void forget_idle();

  std::map<std::string, Client> clients_;
  double now_used_ = 0;  // virtual time of the client served last; a client that was idle starts here
  size_t size_ = 0;
};

}  // namespace millrace
