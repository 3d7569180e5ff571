#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "cli/load/load_client.h"

namespace millrace {

namespace {

// Whether a delta is a piece of the answer. After the first piece an empty delta counts, too: a token without text.
bool is_piece(const nlohmann::json& delta, bool begun) {
  for (const char* kind : {"content", "reasoning_content", "reasoning", "tool_calls"}) {
    const auto piece = delta.find(kind);
    if (piece == delta.end() || piece->is_null()) continue;
    if (begun || !piece->is_string() || !piece->get_ref<const std::string&>().empty()) return true;
  }
  return false;
}

}  // namespace

void AnswerStream::feed(std::string_view bytes, double now) {
  bytes_ += bytes;
  arrivals_.push_back({bytes_.size(), now});
}

void AnswerStream::end() {
  auto arrival = arrivals_.begin();
  for (size_t begin = 0, end; (end = bytes_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    while (arrival->end <= end) ++arrival;
    std::string_view line = std::string_view(bytes_).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with("data:")) continue;
    line.remove_prefix(5);
    while (line.starts_with(' ')) line.remove_prefix(1);
    event(line, arrival->time);
  }
}

void AnswerStream::event(std::string_view data, double time) {
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
  if (is_piece(*delta, !request_.pieces.empty())) request_.pieces.push_back(time);
}

}  // namespace millrace
