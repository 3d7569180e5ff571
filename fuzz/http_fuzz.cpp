// Any bytes on an HTTP session, split anywhere. The first byte says how.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "../tests/server/fake_transport.h"
#include "server/http/http_session.h"

using namespace millrace;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  HttpSessionHost host;
  host.limits.body = 4096;
  host.limits.header = 2048;
  host.limits.ahead = 1024;
  host.refusal = [](int status, const std::string& what) { return HttpReply{.status = status, .body = what}; };
  const bool streams = (data[0] & 1) != 0;
  host.handler = [&](const std::shared_ptr<HttpExchange>& exchange) {
    if (!streams) return exchange->reply({.body = exchange->request().body});
    exchange->begin_stream({.content_type = "text/event-stream"});
    exchange->write("data: " + exchange->request().path + "\n\n");
    exchange->end_stream();
  };
  const auto wire = std::make_shared<FakeWire>();
  wire->read_at_most = 1 + (data[0] >> 1);
  const auto session = std::make_shared<HttpSession>(std::make_unique<FakeTransport>(wire), host, "fuzz");
  session->start();
  wire->in.assign(reinterpret_cast<const char*>(data + 1), size - 1);
  wire->run();
  wire->in_ended = true;
  wire->run();
  session->tick(HttpSession::Clock::now() + std::chrono::hours(1));
  wire->run();
  session->close();
  if (host.bodies != 0) __builtin_trap();  // every reservation for bodies must be released
  return 0;
}
