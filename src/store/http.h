// GET over http and https with libcurl. The client follows redirects itself, hop by hop: a secret goes only to the
// origin it belongs to, and headers that only a redirect carries stay visible.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"

namespace millrace {

struct HttpOptions {
  std::string ca_file, ca_folder;  // empty: the system's
  std::string proxy;               // empty: libcurl reads the usual proxy variables
  int patience_s = 30;             // seconds without a byte until a connection counts as stalled
  std::string secret_origin;       // the only origin that receives bearer_token and user_and_password
  std::string bearer_token, user_and_password;
  std::function<bool()> cancelled;  // polled during transfers; may be empty
};

struct HttpHead {
  long status = 0;
  std::string url;  // the final URL, after redirects
  std::map<std::string, std::string>
      headers;  // lower-case names; headers of earlier hops stay unless a later hop sends them again
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

// The connection broke or stalled, or the server was busy. A retry may succeed.
class TransientError : public Error {
 public:
  explicit TransientError(const std::string& message) : Error(ErrorKind::Network, message) {}
};

class HttpClient {
 public:
  // Receives the body of the final response piece by piece. An exception aborts the transfer.
  using Sink = FunctionRef<void(const HttpHead& head, std::string_view piece)>;

  explicit HttpClient(HttpOptions options);
  ~HttpClient();
  HttpClient(HttpClient&&) noexcept;

  // Throws TransientError or Network if no response arrives. Returns for every status code.
  HttpHead get(const std::string& url, const std::vector<std::string>& headers, Sink sink);

  // Fetches a whole page of at most `limit` bytes. Throws HttpStatusError unless the status is 200.
  struct Page {
    HttpHead head;
    std::string text;
  };
  Page get_page(const std::string& url, const std::vector<std::string>& headers, size_t limit);

  const HttpOptions& options() const { return options_; }

 private:
  struct Hop;
  void prepare(const std::string& url, Hop& hop);
  void perform(const std::string& url, const std::vector<std::string>& headers, Hop& hop);

  HttpOptions options_;
  std::unique_ptr<void, void (*)(void*)> curl_;
};

// A response with an error status: 404, 403, ...
class HttpStatusError : public Error {
 public:
  HttpStatusError(long status, const std::string& message)
      : Error(status == 404 ? ErrorKind::NotFound : ErrorKind::Network, message), status_(status) {}
  long status() const { return status_; }

 private:
  long status_;
};

// Throws TransientError for statuses of a busy server, HttpStatusError for all others.
[[noreturn]] void throw_status(const HttpHead& head, const std::string& asked_url);

}  // namespace millrace
