// Listens, accepts, and runs HTTP sessions on one I/O thread, with or without TLS.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/http/http_session.h"

namespace millrace {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;            // 0: any free port
  std::string certificate, key;    // PEM files; empty: no TLS
  size_t most_connections = 2048;  // further connections get 503
  HttpLimits limits;
};

class HttpServer {
 public:
  using Refusal = std::function<HttpReply(int status, const std::string& what)>;

  // Binds. Throws Io if that fails, BadFile for an invalid certificate or key. Serves nothing before start(). The
  // handler runs on the I/O thread and must not block.
  HttpServer(const HttpServerOptions& options, HttpHandler handler, Refusal refusal);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  void start();
  uint16_t port() const;

  void refuse_new();                               // stops accepting; closes each connection after its current answer
  bool drain(std::chrono::milliseconds patience);  // waits until all are closed; false: timeout
  void stop();                                     // closes all and joins the I/O thread: no handler runs afterwards
  size_t connections() const;

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace millrace
