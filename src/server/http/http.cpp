#include "server/http/http.h"

#include <algorithm>

namespace millrace {

std::string_view HttpRequest::header(std::string_view lower_case_name) const {
  const auto found =
      std::find_if(headers.begin(), headers.end(), [&](const auto& h) { return h.first == lower_case_name; });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

HttpExchange::HttpExchange(std::shared_ptr<HttpConnection> connection, HttpRequest request)
    : connection_(std::move(connection)), request_(std::move(request)) {}

HttpExchange::~HttpExchange() {
  if (!ended_) {
    connection_->post([c = connection_] {
      c->answer({.status = 500, .body = "", .headers = {{"connection", "close"}}});
    });
  }
}

void HttpExchange::reply(HttpReply reply) {
  ended_ = true;
  connection_->post([c = connection_, reply = std::move(reply)]() mutable { c->answer(std::move(reply)); });
}

void HttpExchange::begin_stream(HttpReply head) {
  connection_->post([c = connection_, head = std::move(head)]() mutable { c->begin_stream(std::move(head)); });
}

void HttpExchange::write(std::string bytes) {
  if (connection_->write_now(bytes)) return;
  connection_->post([c = connection_, bytes = std::move(bytes)]() mutable { c->write(std::move(bytes)); });
}

void HttpExchange::end_stream() {
  ended_ = true;
  connection_->post([c = connection_] { c->end_stream(); });
}

void HttpExchange::on_gone(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!gone_) {
      on_gone_ = std::move(callback);
      return;
    }
  }
  callback();
}

bool HttpExchange::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

void HttpExchange::mark_gone() {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    if (gone_) return;
    gone_ = true;
    callback = std::exchange(on_gone_, nullptr);
  }
  if (callback) callback();
}

std::string_view status_text(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return status < 400 ? "OK" : "Error";
  }
}

}  // namespace millrace
