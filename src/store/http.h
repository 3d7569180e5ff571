// GET over http and https, with libcurl. Redirects are followed here, hop by hop, so that a secret is only ever sent to
// the origin it belongs to, and so that headers which only a redirect carries can be seen.
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
  std::string proxy;               // empty: the usual proxy variables decide
  int patience_s = 30;             // a connection that brings no byte for so long has stalled
  std::string secret_origin;       // where bearer_token and user_and_password may be sent
  std::string bearer_token, user_and_password;
  std::function<bool()> cancelled;  // asked now and then; may be empty
};

struct HttpHead {
  long status = 0;
  std::string url;                             // where the answer came from, after redirects
  std::map<std::string, std::string> headers;  // lower-case names; the hops before add what the last one lacks
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

// The connection broke off, stalled, or the server was busy: the same request may well work in a moment.
class TransientError : public Error {
 public:
  explicit TransientError(const std::string& message) : Error(ErrorKind::Network, message) {}
};

class HttpClient {
 public:
  // Gets the pieces of the final answer's body; may throw, which ends the transfer.
  using Sink = FunctionRef<void(const HttpHead& head, std::string_view piece)>;

  explicit HttpClient(HttpOptions options);
  ~HttpClient();
  HttpClient(HttpClient&&) noexcept;

  // Throws TransientError or Network where there is no answer; any status is an answer.
  HttpHead get(const std::string& url, const std::vector<std::string>& headers, Sink sink);

  // A whole page of at most `limit` bytes. Throws HttpStatusError unless the answer is 200.
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

// An answer that is not the one we asked for: 404, 403, ...
class HttpStatusError : public Error {
 public:
  HttpStatusError(long status, const std::string& message)
      : Error(status == 404 ? ErrorKind::NotFound : ErrorKind::Network, message), status_(status) {}
  long status() const { return status_; }

 private:
  long status_;
};

// TransientError for the statuses of a busy server, HttpStatusError for the others.
[[noreturn]] void throw_status(const HttpHead& head, const std::string& asked_url);

}  // namespace millrace
