#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "cli/load/load_client.h"

namespace millrace {

void AnswerStream::feed(std::string_view bytes, double now) {
  for (const char byte : bytes) {
    if (byte != '\n') {
      line_ += byte;
      continue;
    }
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    std::string_view line = line_;
    if (line.starts_with("data:")) {
      line.remove_prefix(5);
      while (line.starts_with(' ')) line.remove_prefix(1);
      event(line, now);
    }
    line_.clear();
  }
}

void AnswerStream::event(std::string_view data, double now) {
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const auto chunk = read_json(data);
  if (!chunk.is_object()) return;
  if (chunk.contains("error")) {
    request_.problem = chunk["error"].is_object() ? chunk["error"].value("message", "an error inside of the stream")
                                                  : "an error inside of the stream";
    return;
  }
  if (const auto usage = chunk.find("usage"); usage != chunk.end() && usage->is_object()) {
    request_.prompt_tokens = usage->value("prompt_tokens", int64_t{0});
    request_.tokens = usage->value("completion_tokens", int64_t{0});
    const auto details = usage->find("prompt_tokens_details");
    if (details != usage->end() && details->is_object())
      request_.cached_tokens = details->value("cached_tokens", int64_t{0});
  }
  const auto choices = chunk.find("choices");
  if (choices == chunk.end() || !choices->is_array() || choices->empty()) return;
  const auto delta = (*choices)[0].find("delta");
  if (delta == (*choices)[0].end() || !delta->is_object()) return;
  for (const char* kind : {"content", "reasoning_content", "reasoning", "tool_calls"}) {
    const auto piece = delta->find(kind);
    const bool says = piece != delta->end() && !piece->is_null() &&
                      !(piece->is_string() && piece->get_ref<const std::string&>().empty());
    if (says) {
      request_.pieces.push_back(now);
      return;
    }
  }
}

}  // namespace millrace
