// GET and DELETE /v1/responses/{id}, GET .../input_items, POST .../cancel: background responses and stored ones.
#include <algorithm>
#include <charconv>

#include "base/percent.h"
#include "server/answer_json.h"
#include "server/api.h"
#include "server/kept_streams.h"
#include "server/stored_responses.h"

namespace millrace {
namespace {

constexpr std::string_view kPrefix = "/v1/responses/", kCancel = "/cancel", kItems = "/input_items";

std::string asked_id(const Call& call) {
  std::string_view id = std::string_view(call.request().path).substr(kPrefix.size());
  for (const std::string_view end : {kCancel, kItems}) {
    if (id.ends_with(end)) id.remove_suffix(end.size());
  }
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

[[noreturn]] void fail_unknown(const std::string& id) {
  throw ApiError({404, fmt::format("there is no response '{}', or it is no longer kept", id.substr(0, 80)),
                  "response_id", "not_found"});
}

size_t page_size(const std::string& limit) {
  if (limit.empty()) return 20;
  size_t size = 0;
  const char* end = limit.data() + limit.size();
  const auto read = std::from_chars(limit.data(), end, size);
  if (read.ec != std::errc() || read.ptr != end || size < 1 || size > 100) {
    fail_field("limit", "invalid_value", "'limit' must be a number from 1 to 100");
  }
  return size;
}

}  // namespace

void answer_response(const std::shared_ptr<Call>& call, ApiContext& context) {
  const std::string id = asked_id(*call);
  const std::string& query = call->request().query;
  const bool events = query_value(query, "stream") == "true";
  if (const auto stream = context.kept.find(id, call->client)) {
    if (!events) return call->reply(stream->response());
    return stream->attach(call, first_event(query_value(query, "starting_after")));
  }
  const auto stored = context.stored->find(id, call->client);
  if (!stored) fail_unknown(id);
  if (events) fail_field("stream", "invalid_value", "only the events of a background response are kept");
  call->reply(Json::parse(stored->response));
}

void answer_input_items(const std::shared_ptr<Call>& call, ApiContext& context) {
  const std::string id = asked_id(*call);
  const auto stored = context.stored->find(id, call->client);
  if (!stored) fail_unknown(id);
  const std::string& query = call->request().query;
  const std::string order = query_value(query, "order"), after = query_value(query, "after");
  if (!order.empty() && order != "asc" && order != "desc")
    fail_field("order", "invalid_value", "'order' must be asc or desc");
  const size_t limit = page_size(query_value(query, "limit"));
  Json items = items_before_answer(*stored);
  if (order != "asc") std::reverse(items.begin(), items.end());
  auto from = items.begin();
  if (!after.empty()) {
    from = std::find_if(items.begin(), items.end(), [&](const Json& item) { return item["id"] == after; });
    if (from == items.end()) fail_field("after", "invalid_value", "'after' names no item of this response");
    ++from;
  }
  Json page = Json::array();
  for (; from != items.end() && page.size() < limit; ++from) page.push_back(*from);
  const auto id_of = [&](size_t at) { return page.empty() ? Json() : page[at]["id"]; };
  const Json first = id_of(0), last = id_of(page.empty() ? 0 : page.size() - 1);
  call->reply(Json{{"object", "list"},
                   {"data", std::move(page)},
                   {"first_id", first},
                   {"last_id", last},
                   {"has_more", from != items.end()}});
}

void answer_cancel_response(const std::shared_ptr<Call>& call, ApiContext& context) {
  const std::string id = asked_id(*call);
  const auto stream = context.kept.find(id, call->client);
  if (!stream && context.stored->find(id, call->client))
    fail_field("response_id", "invalid_value", "only a background response can be cancelled");
  if (!stream) fail_unknown(id);
  stream->cancel();
  call->reply(stream->response());
}

void answer_delete_response(const std::shared_ptr<Call>& call, ApiContext& context) {
  const std::string id = asked_id(*call);
  const auto stream = context.kept.find(id, call->client);
  if (stream) {
    stream->cancel();
    context.kept.forget(id);
  }
  if (!context.stored->forget(id, call->client) && !stream) fail_unknown(id);
  call->reply(Json{{"id", id}, {"object", "response"}, {"deleted", true}});
}

Schema input_items_answer_schema() {
  const auto id = Schema::string().or_null();
  return Schema::object({{"object", Schema::word({"list"}), true},
                         {"data", Schema::array(Schema::object({}, Schema::Others::Allowed)), true},
                         {"first_id", id, true},
                         {"last_id", id, true},
                         {"has_more", Schema::boolean(), true}});
}

Schema delete_answer_schema() {
  return Schema::object({{"id", Schema::string(), true},
                         {"object", Schema::word({"response"}), true},
                         {"deleted", Schema::boolean(), true}});
}

}  // namespace millrace
