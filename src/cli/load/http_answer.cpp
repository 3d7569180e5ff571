#include "cli/load/http_answer.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <limits>

#include "base/error.h"

namespace millrace {

namespace beast_http = boost::beast::http;

struct HttpAnswer::Parser : beast_http::response_parser<beast_http::string_body> {
  Parser() {
    header_limit(1 << 16);
    body_limit(std::numeric_limits<uint64_t>::max());
    eager(true);
  }
};

HttpAnswer::HttpAnswer() : parser_(std::make_unique<Parser>()) {}
HttpAnswer::HttpAnswer(HttpAnswer&&) noexcept = default;
HttpAnswer::~HttpAnswer() = default;

int HttpAnswer::status() const { return parser_->is_header_done() ? static_cast<int>(parser_->get().result_int()) : 0; }

bool HttpAnswer::feed(std::string_view bytes, double now) {
  unread_ += bytes;
  while (!unread_.empty()) {
    boost::system::error_code error;
    unread_.erase(0, parser_->put(boost::asio::buffer(unread_), error));
    if (error && error != beast_http::error::need_more)
      fail(ErrorKind::Network, "the answer is no HTTP/1.1: {}", error.message());
    if (parser_->is_done() && status() < 200) {  // 100 Continue: the final answer follows
      parser_ = std::make_unique<Parser>();
      continue;
    }
    arrivals_.push_back({parser_->get().body().size(), now});
    if (parser_->is_done()) return true;
    if (error == beast_http::error::need_more) return false;
  }
  return false;
}

bool HttpAnswer::close() {
  if (!parser_->is_header_done() || !parser_->need_eof()) return false;
  boost::system::error_code error;
  parser_->put_eof(error);
  return !error;
}

void HttpAnswer::for_pieces(FunctionRef<void(std::string_view, double)> body) const {
  const std::string_view all(parser_->get().body());
  size_t begin = 0;
  for (const Arrival& arrival : arrivals_) {
    if (arrival.end > begin) body(all.substr(begin, arrival.end - begin), arrival.time);
    begin = arrival.end;
  }
}

}  // namespace millrace
