// HTTP as the rest of the server sees it: a completely read request, and an exchange to answer it. Only http_server.h
// and below know the HTTP library.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method, path, query;  // path and query as sent, still encoded
  HttpHeaders headers;              // names in lower case
  std::string body;
  std::string peer;  // address of the client

  std::string_view header(std::string_view lower_case_name) const;  // empty: absent
};

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HttpHeaders headers;
};

// The connection behind an exchange. All functions but the first two run on the I/O thread only.
class HttpConnection {
 public:
  virtual ~HttpConnection() = default;
  virtual void post(std::function<void()> task) = 0;  // from any thread
  // Writes a piece of a stream from the calling thread. False: the I/O thread must write it.
  virtual bool write_now(std::string_view bytes) = 0;
  virtual void answer(HttpReply reply) = 0;
  virtual void begin_stream(HttpReply head) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void end_stream() = 0;
};

// A request being answered: either reply(), or begin_stream(), any number of write()s and end_stream(). Any thread may
// call it, one at a time. Destroying it unanswered closes the connection.
class HttpExchange {
 public:
  HttpExchange(std::shared_ptr<HttpConnection> connection, HttpRequest request);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;

  HttpRequest& request() { return request_; }

  void reply(HttpReply reply);
  void begin_stream(HttpReply head);
  void write(std::string bytes);
  void end_stream();
  // Runs the task on the I/O thread: for little work that writes its result.
  void post(std::function<void()> task) { connection_->post(std::move(task)); }

  // Called once if the client disconnects or is too slow before it has its answer; on the I/O thread, or immediately if
  // that has happened already.
  void on_gone(std::function<void()> callback);
  bool gone() const;

  // Called by the connection when the client has disconnected.
  void mark_gone();

 private:
  std::shared_ptr<HttpConnection> connection_;
  HttpRequest request_;
  bool ended_ = false;
  mutable std::mutex mutex_;
  bool gone_ = false;
  std::function<void()> on_gone_;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

std::string_view status_text(int status);

}  // namespace millrace
