// GET and DELETE /v1/responses/{id}, POST /v1/responses/{id}/cancel: responses with "background": true.
#include <charconv>

#include "base/percent.h"
#include "server/answer_json.h"
#include "server/api.h"
#include "server/kept_streams.h"

namespace millrace {
namespace {

constexpr std::string_view kPrefix = "/v1/responses/", kCancel = "/cancel";

std::string asked_id(const Call& call) {
  std::string_view id = std::string_view(call.request().path).substr(kPrefix.size());
  if (id.ends_with(kCancel)) id.remove_suffix(kCancel.size());
  return percent_decode(id);
}

// The value of a parameter of the query; empty: absent.
std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) == name && equals != std::string_view::npos)
      return percent_decode(pair.substr(equals + 1));
  }
  return "";
}

// The number of the first event that the client lacks.
size_t first_event(const std::string& starting_after) {
  if (starting_after.empty()) return 0;
  size_t last = 0;
  const char* end = starting_after.data() + starting_after.size();
  const auto read = std::from_chars(starting_after.data(), end, last);
  if (read.ec != std::errc() || read.ptr != end || last > INT32_MAX) {
    fail_field("starting_after", "invalid_type", "'starting_after' must be the number of an event");
  }
  return last + 1;
}

}  // namespace

void answer_kept_response(const std::shared_ptr<Call>& call, ApiContext& context) {
  const auto stream = context.kept.find(asked_id(*call), call->client);
  const std::string& query = call->request().query;
  if (query_value(query, "stream") != "true") return call->reply(stream->response());
  stream->attach(call, first_event(query_value(query, "starting_after")));
}

void answer_cancel_response(const std::shared_ptr<Call>& call, ApiContext& context) {
  const auto stream = context.kept.find(asked_id(*call), call->client);
  stream->cancel();
  call->reply(stream->response());
}

void answer_delete_response(const std::shared_ptr<Call>& call, ApiContext& context) {
  const std::string id = asked_id(*call);
  context.kept.find(id, call->client)->cancel();
  context.kept.forget(id);
  call->reply(Json{{"id", id}, {"object", "response"}, {"deleted", true}});
}

Schema delete_answer_schema() {
  return Schema::object({{"id", Schema::string(), true},
                         {"object", Schema::word({"response"}), true},
                         {"deleted", Schema::boolean(), true}});
}

}  // namespace millrace
