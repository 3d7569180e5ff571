// Sessions of clients that run tools between their requests: which session a request continues, and what each session
// has taken so far. A session is known by its tokens: the next prompt begins with the last one.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/call.h"

namespace millrace {

struct Adapter;

class AgentSessions {
 public:
  struct Session {
    std::string id;
    std::string owner;   // name of the API key
    std::string client;  // the key and the request's `user`
    std::shared_ptr<const Adapter> adapter;
    std::vector<int32_t> tokens;  // of its last prompt and answer
    bool waits = false;           // its last answer calls a tool
    int running = 0;              // requests
    SessionLedger ledger;
    double idle_seconds = 0;  // since its last request ended
  };
  struct Who {
    std::string owner, client;
    std::string id;  // as the request gives it; empty: the session is found by its tokens
    std::shared_ptr<const Adapter> adapter;
  };

  // A request begins: the number of the session that it continues; 0: none. end() or abandon() must follow.
  uint64_t begin(const Who& who, std::span<const int32_t> prompt);
  // The request has ended. `session`: as begin() returned it. A request that continues no session begins one if its
  // answer calls a tool, or if it gave an id. `before`: the tokens of the session until now.
  std::optional<SessionLedger> end(const Who& who, uint64_t session, const Usage& usage, std::vector<int32_t> tokens,
                                   size_t prompt, bool waits, std::vector<int32_t>& before);
  void abandon(uint64_t session, const Usage& usage);  // the request was cancelled or refused

  std::vector<Session> list(const std::string& owner, size_t most) const;  // the most recently used first

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept {
    Session session;
    uint64_t number = 0;
    size_t must_agree = 0;  // so many first tokens must be those of the next prompt
    uint64_t hash = 0;      // of them
    Clock::time_point used;
  };
  std::list<Kept>::iterator find(uint64_t number);
  void trim();

  mutable std::mutex mutex_;
  std::list<Kept> sessions_;  // most recently used first
  size_t tokens_ = 0;         // of all sessions
  uint64_t last_ = 0;         // number given
};

}  // namespace millrace
