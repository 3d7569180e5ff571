#include "server/http/http_server.h"

#include <netinet/tcp.h>
#include <sys/resource.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "server/http/http_socket.h"

namespace millrace {
namespace {

using boost::asio::ip::tcp;

// A thousand connections need as many file descriptors; the usual soft limit is about that.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Keep-alive probes detect clients whose machine disappeared without closing the connection.
void set_up(tcp::socket& socket) {
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  const auto set = [&](int name, int value) {
    setsockopt(socket.native_handle(), IPPROTO_TCP, name, &value, sizeof(value));
  };
  set(TCP_KEEPIDLE, 15);
  set(TCP_KEEPINTVL, 5);
  set(TCP_KEEPCNT, 3);
  set(TCP_USER_TIMEOUT, 30000);
}

tcp::endpoint resolve(boost::asio::io_context& io, const std::string& host, uint16_t port) {
  boost::system::error_code error;
  const auto found = tcp::resolver(io).resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) fail(ErrorKind::Usage, "--host {}: not an address of this machine", host);
  return *found.begin();
}

}  // namespace

class HttpServer::Listener {
 public:
  Listener(const HttpServerOptions& options, HttpHandler handler, HttpServer::Refusal refusal)
      : options_(options), acceptor_(io_), timer_(io_), tls_(make_tls(options.certificate, options.key)) {
    host_.limits = options.limits;
    host_.handler = std::move(handler);
    host_.refusal = std::move(refusal);
    raise_descriptor_limit();
    listen();
  }

  ~Listener() {
    stop();
    sessions_.clear();
  }

  void stop() {
    if (!thread_.joinable()) return;
    boost::asio::post(io_, [this] {
      for (const auto& session : std::unordered_set(sessions_)) session->close();
      io_.stop();
    });
    thread_.join();
  }

  void start() {
    accept();
    tick();
    thread_ = std::thread([this] { io_.run(); });
  }

  uint16_t port() const { return port_; }
  size_t connections() const { return connections_; }

  void refuse_new() {
    draining_ = true;
    boost::asio::post(io_, [this] {
      host_.draining = true;
      acceptor_.close();
      for (const auto& session : std::unordered_set(sessions_)) session->drain();
      forget_closed();
    });
  }

  bool drain(std::chrono::milliseconds patience) {
    refuse_new();
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (connections_ > 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return connections_ == 0;
  }

 private:
  void listen() {
    const tcp::endpoint endpoint = resolve(io_, options_.host, options_.port);
    boost::system::error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(boost::asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(1024, error);
    if (error) fail(ErrorKind::Io, "cannot listen on {}:{}: {}", options_.host, options_.port, error.message());
    port_ = acceptor_.local_endpoint().port();
  }

  void accept() {
    acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (!error) take(std::move(socket));
      if (!error || error == boost::asio::error::connection_aborted) return accept();
      log().warn("cannot accept a connection: {}", error.message());
      accept_later();
    });
  }

  // Probably out of file descriptors: retry when connections have ended.
  void accept_later() {
    auto pause = std::make_shared<boost::asio::steady_timer>(io_, std::chrono::milliseconds(200));
    pause->async_wait([this, pause](boost::system::error_code) { accept(); });
  }

  void take(tcp::socket socket) {
    if (sessions_.size() >= options_.most_connections) forget_closed();  // sessions closed since the last tick
    if (sessions_.size() >= options_.most_connections) return turn_away(socket);
    set_up(socket);
    boost::system::error_code error;
    const auto peer = socket.remote_endpoint(error);
    if (error) return;
    auto transport = tls_ ? make_tls_transport(std::move(socket), *tls_) : make_plain_transport(std::move(socket));
    auto session = std::make_shared<HttpSession>(std::move(transport), host_, peer.address().to_string());
    sessions_.insert(session);
    connections_ = sessions_.size();
    session->start();
  }

  void turn_away(tcp::socket& socket) {
    boost::system::error_code ignored;
    socket.non_blocking(true, ignored);
    const std::string text =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    if (!tls_) socket.write_some(boost::asio::buffer(text), ignored);
  }

  void forget_closed() {
    std::erase_if(sessions_, [](const auto& session) { return session->closed(); });
    connections_ = sessions_.size();
  }

  void tick() {
    const auto pause = draining_ ? std::chrono::milliseconds(50) : std::chrono::milliseconds(500);
    timer_.expires_after(pause);
    timer_.async_wait([this](boost::system::error_code error) {
      if (error) return;
      const auto now = HttpSession::Clock::now();
      for (const auto& session : std::unordered_set(sessions_)) session->tick(now);
      forget_closed();
      tick();
    });
  }

  HttpServerOptions options_;
  HttpSessionHost host_;
  boost::asio::io_context io_{1};
  tcp::acceptor acceptor_;
  boost::asio::steady_timer timer_;
  std::unique_ptr<TlsContext, TlsContextDeleter> tls_;
  uint16_t port_ = 0;
  std::unordered_set<std::shared_ptr<HttpSession>> sessions_;
  std::atomic<size_t> connections_{0};
  std::atomic<bool> draining_{false};
  std::thread thread_;
};

HttpServer::HttpServer(const HttpServerOptions& options, HttpHandler handler, Refusal refusal)
    : listener_(std::make_unique<Listener>(options, std::move(handler), std::move(refusal))) {}

HttpServer::~HttpServer() = default;

void HttpServer::start() { listener_->start(); }
uint16_t HttpServer::port() const { return listener_->port(); }
void HttpServer::refuse_new() { listener_->refuse_new(); }
void HttpServer::stop() { listener_->stop(); }
bool HttpServer::drain(std::chrono::milliseconds patience) { return listener_->drain(patience); }
size_t HttpServer::connections() const { return listener_->connections(); }

}  // namespace millrace
