#include "server/session_turn.h"

#include "server/requests/sampling_request.h"
#include "server/served_model.h"

namespace millrace {
namespace {

// A header for all protocols; a field where the protocol has room for one.
std::string asked_session(Call& call) {
  std::string id(call.request().header("x-session-id"));
  if (id.empty() && !call.request().body.empty()) {  // a background response has no body any more
    const Json& body = call.body();
    const auto field = body.is_object() ? body.find("session_id") : body.end();
    if (field != body.end() && field->is_string()) id = field->get<std::string>();
  }
  // The field was checked with the body.
  if (id.size() > kLongestSessionId && !call.request().header("x-session-id").empty())
    fail_field("X-Session-Id", "invalid_value", "X-Session-Id must be of at most {} bytes", kLongestSessionId);
  return id;
}

}  // namespace

SessionTurn::SessionTurn(ServedModel& model, Call& call, const Request& request)
    : model_(model),
      call_(call),
      who_{call.client, request.client, asked_session(call), call.adapter},
      prompt_(request.prompt),
      session_(model.sessions().begin(who_, prompt_)) {}

SessionTurn::~SessionTurn() {
  if (!ended_ && session_ != 0) model_.sessions().abandon(session_, call_.usage);
}

void SessionTurn::end(const std::vector<int32_t>& answer, bool waits) {
  ended_ = true;
  const size_t prompt = prompt_.size();
  std::vector<int32_t> tokens = std::move(prompt_), before;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  call_.usage.session = model_.sessions().end(who_, session_, call_.usage, tokens, prompt, waits, before);
  if (waits || !before.empty())
    model_.service().park(who_.adapter, waits ? std::move(tokens) : std::vector<int32_t>(), std::move(before));
}

}  // namespace millrace
