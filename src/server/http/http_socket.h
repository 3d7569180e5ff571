// Transports over sockets: plain, and with TLS.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>

#include "server/http/http_transport.h"

namespace millrace {

class TlsContext;
struct TlsContextDeleter {
  void operator()(TlsContext* context) const;
};

std::unique_ptr<HttpTransport> make_plain_transport(boost::asio::ip::tcp::socket socket);
std::unique_ptr<HttpTransport> make_tls_transport(boost::asio::ip::tcp::socket socket, TlsContext& context);

// Null if both names are empty. Throws Usage if one is, BadFile if a file is no certificate or key.
std::unique_ptr<TlsContext, TlsContextDeleter> make_tls(const std::string& certificate, const std::string& key);

}  // namespace millrace
