#include "server/response_output.h"

#include <string>
#include <string_view>

namespace millrace {
namespace {

// The list of the item that has the event's part; null: none.
Json* parts_of(Json& item, std::string_view type) {
  const auto found = item.find(type.starts_with("response.reasoning_summary_") ? "summary" : "content");
  return found == item.end() || !found->is_array() ? nullptr : &*found;
}

void grow(Json& owner, const char* field, const Json& delta) {
  const auto text = owner.find(field);
  if (text != owner.end() && text->is_string() && delta.is_string())
    text->get_ref<std::string&>() += delta.get_ref<const std::string&>();
}

void add_delta(Json& item, std::string_view type, const Json& event) {
  if (type == "response.function_call_arguments.delta") return grow(item, "arguments", event["delta"]);
  if (type == "response.custom_tool_call_input.delta") return grow(item, "input", event["delta"]);
  Json* parts = parts_of(item, type);
  if (parts == nullptr || parts->empty()) return;
  Json& part = parts->back();
  grow(part, "text", event["delta"]);
  if (!event.contains("logprobs") || !part.contains("logprobs")) return;
  for (const Json& one : event["logprobs"]) part["logprobs"].push_back(one);
}

}  // namespace

void ResponseOutput::add(const Json& event) {
  if (!event.is_object() || !event.contains("output_index")) return;
  const std::string type = event.value("type", "");
  const size_t index = event["output_index"].get<size_t>();
  if (type == "response.output_item.added" && index == items_.size()) items_.push_back(event["item"]);
  if (index >= items_.size()) return;
  Json& item = items_[index];
  if (type == "response.output_item.done") {
    item = event["item"];
  } else if (type.ends_with("_part.added")) {
    if (Json* parts = parts_of(item, type)) parts->push_back(event["part"]);
  } else if (type.ends_with(".delta")) {
    add_delta(item, type, event);
  }
}

Json ResponseOutput::stopped() const {
  Json items = items_;
  for (Json& item : items) {
    if (item["status"] == "in_progress") item["status"] = "incomplete";
  }
  return items;
}

}  // namespace millrace
