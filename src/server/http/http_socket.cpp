#include "server/http/http_socket.h"

#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <cerrno>

namespace millrace {
namespace {

using boost::asio::ip::tcp;
using BoostError = boost::system::error_code;

class PlainTransport final : public HttpTransport {
 public:
  explicit PlainTransport(tcp::socket socket) : socket_(std::move(socket)) {}

  void start(Done done) override { done(true, 0); }

  void read(std::span<char> into, Done done) override {
    socket_.async_read_some(boost::asio::buffer(into.data(), into.size()),
                            [done = std::move(done)](BoostError error, size_t bytes) { done(!error, bytes); });
  }

  void write(std::string_view from, Done done) override {
    socket_.async_write_some(boost::asio::buffer(from.data(), from.size()),
                             [done = std::move(done)](BoostError error, size_t bytes) { done(!error, bytes); });
  }

  std::optional<Written> write_now(std::string_view from) override {
    const ssize_t sent = ::send(socket_.native_handle(), from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return Written{true, static_cast<size_t>(sent)};
    return Written{errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR, 0};
  }

  void finish(Done done) override {
    BoostError error;
    socket_.shutdown(tcp::socket::shutdown_send, error);
    done(!error, 0);
  }

  void close() override {
    BoostError ignored;
    socket_.close(ignored);
  }

  void post(std::function<void()> task) override { boost::asio::post(socket_.get_executor(), std::move(task)); }

 private:
  tcp::socket socket_;
};

}  // namespace

std::unique_ptr<HttpTransport> make_plain_transport(tcp::socket socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

}  // namespace millrace
