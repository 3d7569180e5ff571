#include "server/stored_responses.h"

#include <algorithm>
#include <vector>

#include "server/answer_json.h"
#include "server/requests/api_error.h"

namespace millrace {
namespace {

void append_answer(const StoredTurn& turn, Json& items) {
  Json response = Json::parse(turn.response);
  for (Json& item : response["output"]) items.push_back(std::move(item));
}

}  // namespace

void StoredResponses::add(const std::string& id, StoredTurn turn) {
  if (turn.previous) turn.turns = turn.previous->turns + 1;
  const size_t bytes = turn.input.size() + turn.response.size();
  *bytes_ += bytes;
  const std::shared_ptr<const StoredTurn> stored(new StoredTurn(std::move(turn)),
                                                 [bytes, total = bytes_](const StoredTurn* dead) {
                                                   *total -= bytes;
                                                   delete dead;
                                                 });
  const std::lock_guard lock(mutex_);
  entries_[id] = {stored, ++clock_};
  while (!entries_.empty() && (entries_.size() > limits_.responses || *bytes_ > limits_.bytes)) {
    entries_.erase(std::min_element(entries_.begin(), entries_.end(),
                                    [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }
}

std::shared_ptr<const StoredTurn> StoredResponses::find(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.turn->owner != owner) return nullptr;
  found->second.used = ++clock_;
  return found->second.turn;
}

bool StoredResponses::forget(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.turn->owner != owner) return false;
  entries_.erase(found);
  return true;
}

std::shared_ptr<const StoredTurn> StoredResponses::previous(const std::string& id, const std::string& owner) {
  auto turn = find(id, owner);
  if (!turn) {
    fail_field("previous_response_id", "previous_response_not_found",
               "Previous response with id '{}' not found: it has not ended, had \"store\": false, or is no longer kept",
               id.substr(0, 80));
  }
  if (turn->turns >= limits_.turns) {
    fail_field("previous_response_id", "invalid_value",
               "a conversation of more than {} stored responses must be sent whole", limits_.turns);
  }
  return turn;
}

size_t StoredResponses::size() {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

Json listed_input(const Json& input) {
  Json items = input.is_array() ? input : Json::array({{{"role", "user"}, {"content", input}}});
  for (Json& item : items) {
    if (!item.contains("type") || item["type"].is_null()) item["type"] = "message";
    if (!item.contains("id") || !item["id"].is_string())
      item["id"] = make_id(item["type"] == "message" ? "msg_" : "it_");
    if (item["type"] != "message" || !item["content"].is_string()) continue;
    Json part{{"type", "input_text"}, {"text", item["content"]}};
    if (item["role"] == "assistant")
      part = {{"type", "output_text"}, {"text", item["content"]}, {"annotations", Json::array()}};
    item["content"] = Json::array({std::move(part)});
  }
  return items;
}

Json items_before_answer(const StoredTurn& turn) {
  std::vector<const StoredTurn*> turns;  // the last one first
  for (const StoredTurn* at = &turn; at != nullptr; at = at->previous.get()) turns.push_back(at);
  Json items = Json::array();
  for (auto at = turns.rbegin(); at != turns.rend(); ++at) {
    for (Json& item : Json::parse((*at)->input)) items.push_back(std::move(item));
    if (*at != &turn) append_answer(**at, items);
  }
  return items;
}

Json items_with_answer(const StoredTurn& turn) {
  Json items = items_before_answer(turn);
  append_answer(turn, items);
  return items;
}

}  // namespace millrace
