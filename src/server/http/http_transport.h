// The byte stream under an HTTP session: a socket, a TLS stream, or a test's. All calls and callbacks are on one
// thread, except where noted.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

namespace millrace {

class HttpTransport {
 public:
  using Done = std::function<void(bool good, size_t bytes)>;

  virtual ~HttpTransport() = default;
  virtual void start(Done done) = 0;                         // TLS handshake
  virtual void read(std::span<char> into, Done done) = 0;    // some bytes; not good: the peer has closed
  virtual void write(std::string_view from, Done done) = 0;  // some bytes
  // Writes what fits without blocking; from any thread, while no write is pending and the transport is open. Nullopt:
  // not supported; not good: the peer has closed.
  struct Written {
    bool good = true;
    size_t bytes = 0;
  };
  virtual std::optional<Written> write_now(std::string_view) { return std::nullopt; }
  virtual void finish(Done done) = 0;                 // half-close: nothing more will be written
  virtual void close() = 0;                           // immediately; pending callbacks are still called
  virtual void post(std::function<void()> task) = 0;  // from any thread
};

}  // namespace millrace
