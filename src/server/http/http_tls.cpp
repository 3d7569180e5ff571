// The TLS half of http_socket.h.
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>

#include "base/error.h"
#include "server/http/http_socket.h"

namespace millrace {

namespace ssl = boost::asio::ssl;
using boost::asio::ip::tcp;
using BoostError = boost::system::error_code;

class TlsContext {
 public:
  ssl::context context{ssl::context::tls_server};
};

void TlsContextDeleter::operator()(TlsContext* context) const { delete context; }

namespace {

class TlsTransport final : public HttpTransport {
 public:
  TlsTransport(tcp::socket socket, ssl::context& context) : stream_(std::move(socket), context) {}

  void start(Done done) override {
    stream_.async_handshake(ssl::stream_base::server, [done = std::move(done)](BoostError error) { done(!error, 0); });
  }

  void read(std::span<char> into, Done done) override {
    stream_.async_read_some(boost::asio::buffer(into.data(), into.size()),
                            [done = std::move(done)](BoostError error, size_t bytes) { done(!error, bytes); });
  }

  void write(std::string_view from, Done done) override {
    stream_.async_write_some(boost::asio::buffer(from.data(), from.size()),
                             [done = std::move(done)](BoostError error, size_t bytes) { done(!error, bytes); });
  }

  // Sends close_notify, so that the client can tell the end from a truncation. The session closes when the client has
  // done so, too.
  void finish(Done done) override {
    stream_.async_shutdown([done = std::move(done)](BoostError error) { done(!error, 0); });
  }

  void close() override {
    BoostError ignored;
    stream_.lowest_layer().close(ignored);
  }

  void post(std::function<void()> task) override { boost::asio::post(stream_.get_executor(), std::move(task)); }

 private:
  ssl::stream<tcp::socket> stream_;
};

// OpenSSL's own message would be "system lib" or empty.
void check_readable(const char* option, const std::string& file) {
  if (::access(file.c_str(), R_OK) != 0) fail_errno(fmt::format("{} {}", option, file));
}

}  // namespace

std::unique_ptr<HttpTransport> make_tls_transport(tcp::socket socket, TlsContext& context) {
  return std::make_unique<TlsTransport>(std::move(socket), context.context);
}

std::unique_ptr<TlsContext, TlsContextDeleter> make_tls(const std::string& certificate, const std::string& key) {
  if (certificate.empty() && key.empty()) return nullptr;
  if (certificate.empty() || key.empty()) fail(ErrorKind::Usage, "TLS takes both --tls-cert and --tls-key");
  std::unique_ptr<TlsContext, TlsContextDeleter> tls(new TlsContext);
  BoostError error;
  tls->context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                               ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1,
                           error);
  check_readable("--tls-cert", certificate);
  check_readable("--tls-key", key);
  tls->context.use_certificate_chain_file(certificate, error);
  if (error) fail(ErrorKind::BadFile, "--tls-cert {}: {}", certificate, error.message());
  tls->context.use_private_key_file(key, ssl::context::pem, error);
  if (error) fail(ErrorKind::BadFile, "--tls-key {}: {}", key, error.message());
  return tls;
}

}  // namespace millrace
