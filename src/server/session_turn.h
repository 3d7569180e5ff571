// The part of one request in its session: finds the session, counts what the request takes, and parks the state if the
// answer calls a tool.
#pragma once

#include <string>
#include <vector>

#include "engine/request.h"
#include "server/agent_sessions.h"

namespace millrace {

class ServedModel;

class SessionTurn {
 public:
  SessionTurn(ServedModel& model, Call& call, const Request& request);
  ~SessionTurn();  // a request that did not end counts what it took
  SessionTurn(const SessionTurn&) = delete;

  void end(const std::vector<int32_t>& answer, bool waits);  // sets the call's usage.session

 private:
  ServedModel& model_;
  Call& call_;
  AgentSessions::Who who_;
  std::vector<int32_t> prompt_;
  const uint64_t session_;  // its number; 0: none yet
  bool ended_ = false;
};

}  // namespace millrace
