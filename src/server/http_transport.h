// The bytes under an HTTP session: a socket, a TLS stream, or what a test feeds. Calls and callbacks stay on one
// thread, but for those that say otherwise.
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
  virtual void start(Done done) = 0;                         // TLS's handshake
  virtual void read(std::span<char> into, Done done) = 0;    // some bytes; not good: the other side has left
  virtual void write(std::string_view from, Done done) = 0;  // some bytes
  // At once what can be, from any thread while no write is under way and the transport is not closed. Nothing: it
  // cannot do that; not good: the other side has left.
  struct Written {
    bool good = true;
    size_t bytes = 0;
  };
  virtual std::optional<Written> write_now(std::string_view) { return std::nullopt; }
  virtual void finish(Done done) = 0;                 // says that nothing more will be written
  virtual void close() = 0;                           // at once; callbacks under way still come
  virtual void post(std::function<void()> task) = 0;  // from any thread
};

}  // namespace millrace
