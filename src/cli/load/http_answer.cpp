#include "cli/load/http_answer.h"

#include <algorithm>
#include <charconv>

#include "base/ascii.h"
#include "base/error.h"

namespace millrace {
namespace {

constexpr size_t kLongestHead = 1 << 16;

std::optional<size_t> number(std::string_view text, int base) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

}  // namespace

bool HttpAnswer::feed(std::string_view bytes, double now) {
  bytes_ += bytes;
  arrivals_.push_back({bytes_.size(), now});
  if (status_ == 0) read_head(now);
  if (status_ == 0) return false;
  if (chunked_) return read_chunks();
  return length_ && bytes_.size() - body_ >= *length_;
}

bool HttpAnswer::close() { return status_ != 0 && !chunked_ && !length_; }

void HttpAnswer::read_head(double now) {
  const size_t end = bytes_.find("\r\n\r\n");
  if (end == std::string::npos) {
    if (bytes_.size() > kLongestHead) fail(ErrorKind::Network, "the answer is no HTTP");
    return;
  }
  const std::string_view head = std::string_view(bytes_).substr(0, end);
  const auto status = head.starts_with("HTTP/1.") && head.size() > 12 ? number(head.substr(9, 3), 10) : std::nullopt;
  if (!status || *status < 100) fail(ErrorKind::Network, "the answer is no HTTP/1.1");
  if (*status < 200) {  // "go on": the real one follows
    bytes_.erase(0, end + 4);
    arrivals_.assign(1, {bytes_.size(), now});
    return read_head(now);
  }
  for (size_t at = head.find("\r\n"); at != std::string_view::npos;) {
    const size_t next = head.find("\r\n", at + 2);
    const std::string_view line = head.substr(at + 2, next == std::string_view::npos ? next : next - at - 2);
    const size_t colon = std::min(line.find(':'), line.size());
    const std::string name = ascii_lower(line.substr(0, colon));
    const std::string_view value = ascii_trim(line.substr(std::min(colon + 1, line.size())));
    if (name == "transfer-encoding") chunked_ = ascii_lower(value).ends_with("chunked");
    if (name == "content-length") length_ = number(value, 10);
    at = next;
  }
  status_ = static_cast<int>(*status);
  body_ = chunk_ = end + 4;
}

bool HttpAnswer::read_chunks() {
  while (true) {
    const size_t line_end = bytes_.find("\r\n", chunk_);
    if (line_end == std::string::npos) return false;
    const auto size = number(std::string_view(bytes_).substr(chunk_, line_end - chunk_), 16);
    if (!size || *size > (size_t{1} << 40)) fail(ErrorKind::Network, "the answer is not in chunks as it says");
    const size_t begin = line_end + 2;
    if (*size == 0) return bytes_.find("\r\n", begin) != std::string::npos;
    if (bytes_.size() < begin + *size + 2) return false;
    chunks_.push_back({begin, begin + *size});
    chunk_ = begin + *size + 2;
  }
}

void HttpAnswer::for_pieces(FunctionRef<void(std::string_view, double)> body) const {
  const std::string_view all(bytes_);
  auto arrival = arrivals_.begin();
  if (chunked_) {
    for (const Piece& chunk : chunks_) {
      while (arrival->end < chunk.end) ++arrival;
      body(all.substr(chunk.begin, chunk.end - chunk.begin), arrival->time);
    }
    return;
  }
  for (size_t begin = body_; arrival != arrivals_.end() && status_ != 0; ++arrival) {
    if (arrival->end <= begin) continue;
    body(all.substr(begin, arrival->end - begin), arrival->time);
    begin = arrival->end;
  }
}

}  // namespace millrace
