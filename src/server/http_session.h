// One connection: reads requests one after the other, hands each to the server and writes its answer. It notices a
// client that leaves while its answer is made, and bounds what clients may take: memory, and time to send and to read.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/http_transport.h"

namespace millrace {

struct HttpLimits {
  size_t body = size_t{8} << 20;
  size_t bodies = size_t{256} << 20;  // of all connections together, while they are read
  size_t header = size_t{16} << 10;
  size_t ahead = size_t{64} << 10;   // bytes of next requests that are read while one is answered
  size_t backlog = size_t{1} << 20;  // of a stream, not yet taken by the client
  std::chrono::seconds header_time{10}, body_time{60}, idle_time{75}, write_time{30}, linger_time{2};
  std::chrono::seconds comment_every{10};  // keep-alive of an event stream that has nothing to say
};

// What the sessions of a server share.
struct HttpSessionHost {
  HttpLimits limits;
  HttpHandler handler;                                                    // on the I/O thread: must not block
  std::function<HttpReply(int status, const std::string& what)> refusal;  // body of an answer that HTTP itself causes
  size_t bodies = 0;                                                      // bytes promised to bodies under way
  bool draining = false;
};

class HttpSession final : public HttpConnection, public std::enable_shared_from_this<HttpSession> {
 public:
  using Clock = std::chrono::steady_clock;

  HttpSession(std::unique_ptr<HttpTransport> transport, HttpSessionHost& host, std::string peer);
  ~HttpSession() override;

  void start();
  void tick(Clock::time_point now);  // about once a second: limits of time, keep-alive
  void drain();                      // closes once it has nothing to answer
  void close();
  bool closed() const { return state_ == State::Closed; }

  void post(std::function<void()> task) override { transport_->post(std::move(task)); }
  bool write_now(std::string_view bytes) override;
  void answer(HttpReply reply) override;
  void begin_stream(HttpReply head) override;
  void write(std::string bytes) override;
  void end_stream() override;

 private:
  enum class State { Starting, Reading, Answering, Lingering, Closed };
  struct Message;  // the request being parsed

  void read_more();
  void on_read(bool good, size_t bytes);
  void parse();
  bool take_header();  // false: the request was refused
  void dispatch();
  void refuse(int status, const std::string& what);
  void peer_left();
  void too_slow();
  void send(std::string_view bytes);  // a piece of a stream
  void take_rest(bool good, std::string_view rest);
  void open_lane();
  bool close_lane();  // false: pieces are on their way to the I/O thread
  void note_progress();
  Clock::time_point last_progress();
  void queue(std::string_view bytes);
  void write_more();
  void on_written(bool good, size_t bytes);
  void answered();
  void linger();
  void release_body();
  std::string head_text(const HttpReply& reply, bool stream) const;

  std::unique_ptr<HttpTransport> transport_;
  HttpSessionHost& host_;
  std::string peer_;
  State state_ = State::Starting;
  Clock::time_point since_;  // when the state, or the part of a request being read, began

  std::string in_, chunk_;  // read and not parsed; where reads go
  bool reading_ = false, at_end_ = false;
  std::unique_ptr<Message> message_;
  size_t promised_ = 0;  // of host_.bodies

  std::weak_ptr<HttpExchange> exchange_;
  bool keep_alive_ = true, old_ = false, head_only_ = false;  // of the request being answered; old: HTTP/1.0
  bool streaming_ = false, events_ = false, ended_ = false;

  std::string out_, writing_;  // to be written; being written
  size_t written_ = 0;         // of writing_
  bool writing_now_ = false;

  // The lane on which other threads write pieces of a stream at once. It is open while nothing else is to be written:
  // the I/O thread closes it before it writes, ends or closes itself, and opens it when all of that is done.
  std::mutex lane_;  // of what follows
  bool lane_open_ = false;
  int behind_ = 0;              // pieces that did not go by the lane, on their way to the I/O thread
  std::string framed_;          // a piece with its frame
  Clock::time_point progress_;  // of writing
};

}  // namespace millrace
