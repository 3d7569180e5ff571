#include "server/http/http_session.h"
#include "fresh_seed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "fake_transport.h"

namespace millrace {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class HttpSessionTest : public testing::Test {
 protected:
  HttpSessionTest() {
    host_.handler = [this](std::shared_ptr<HttpExchange> exchange) {
      seen_.push_back(exchange->request());
      if (answer_at_once_) {
        exchange->reply({.body = "<" + exchange->request().body + ">", .content_type = "text/plain"});
      } else {
        open_ = std::move(exchange);
      }
    };
    host_.refusal = [](int status, const std::string& what) { return HttpReply{.status = status, .body = what}; };
    connect();
  }
  ~HttpSessionTest() override { disconnect(); }

  void connect() {
    if (session_) disconnect();
    wire_ = std::make_shared<FakeWire>();
    session_ = std::make_shared<HttpSession>(std::make_unique<FakeTransport>(wire_), host_, "test");
    session_->start();
  }

  // Pending operations keep a session alive, and the wire holds pending operations.
  void disconnect() {
    open_.reset();
    session_->close();
    wire_->run();
  }

  void send(const std::string& bytes) {
    wire_->in += bytes;
    wire_->run();
  }

  void later(std::chrono::seconds time) {
    session_->tick(HttpSession::Clock::now() + time);
    wire_->run();
  }

  HttpSessionHost host_;
  std::shared_ptr<FakeWire> wire_;
  std::shared_ptr<HttpSession> session_;
  std::vector<HttpRequest> seen_;
  std::shared_ptr<HttpExchange> open_;
  bool answer_at_once_ = true;
};

const std::string kPost = "POST /x?y=1 HTTP/1.1\r\nHost: h\r\nX-Case: Yes\r\nContent-Length: 5\r\n\r\nhello";

TEST_F(HttpSessionTest, AnswersAndStaysOpen) {
  send(kPost);
  ASSERT_EQ(seen_.size(), 1u);
  EXPECT_EQ(seen_[0].method, "POST");
  EXPECT_EQ(seen_[0].path, "/x");
  EXPECT_EQ(seen_[0].query, "y=1");
  EXPECT_EQ(seen_[0].header("x-case"), "Yes");
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(wire_->out, HasSubstr("Content-Length: 7\r\n"));
  EXPECT_TRUE(wire_->out.ends_with("\r\n\r\n<hello>"));
  send(kPost);
  EXPECT_EQ(seen_.size(), 2u);
  EXPECT_FALSE(wire_->closed);
}

TEST_F(HttpSessionTest, CutsDoNotMatter) {
  const auto seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string chunked =
      "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nTrailer: "
      "t\r\n\r\n";
  std::string bytes;
  for (int i = 0; i < 50; ++i) bytes += i % 2 == 0 ? kPost : "\r\n" + chunked;  // pipelined
  wire_->write_at_most = 7;
  while (!bytes.empty()) {
    const size_t n = std::min<size_t>(bytes.size(), 1 + random() % 40);
    send(bytes.substr(0, n));
    bytes.erase(0, n);
  }
  ASSERT_EQ(seen_.size(), 50u);
  for (size_t i = 0; i < seen_.size(); ++i) EXPECT_EQ(seen_[i].body, i % 2 == 0 ? "hello" : "abcdefg");
  size_t answers = 0;
  for (size_t at = 0; (at = wire_->out.find("HTTP/1.1 200", at)) != std::string::npos; ++at) ++answers;
  EXPECT_EQ(answers, 50u);
}

TEST_F(HttpSessionTest, RefusesWhatIsTooLarge) {
  host_.limits.body = 100;
  send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n");
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 413 "));
  EXPECT_TRUE(wire_->finished);
  send(std::string(1 << 20, 'x'));  // received while lingering: dropped, so that the client can read the answer
  EXPECT_FALSE(wire_->closed);
  later(std::chrono::seconds(3));
  EXPECT_TRUE(wire_->closed);

  connect();
  send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + std::string(255, 'x') + "\r\n");
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 413 "));

  connect();
  send("GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(20000, 'x'));
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 431 "));

  connect();
  host_.limits.body = 1000;
  host_.limits.bodies = 500;
  send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 501\r\n\r\n");
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 503 "));
  EXPECT_TRUE(seen_.empty());
  EXPECT_EQ(host_.bodies, 0u);
}

TEST_F(HttpSessionTest, RefusesWhatIsNoHttp) {
  for (const std::string bad :
       {"hello\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02\x01garbage\r\n"}) {
    connect();
    send(bad);
    EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 400 ")) << bad;
    EXPECT_TRUE(wire_->finished);
  }
  EXPECT_TRUE(seen_.empty());
}

TEST_F(HttpSessionTest, ARefusalDoesNotTakeAfterTheRequestBefore) {
  send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
  wire_->out.clear();
  send("hello\r\n\r\n");
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(wire_->out, HasSubstr("\r\n\r\nthis is not HTTP")) << "only the answer to a HEAD has no body";

  connect();
  send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  wire_->out.clear();
  send("hello\r\n\r\n");
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 400 "));
}

TEST_F(HttpSessionTest, WantsOneValidHost) {
  const std::string get = "GET / HTTP/1.1\r\n";
  for (const std::string bad :
       {"", "Host: a\r\nHost: a\r\n", "host: a\r\nHOST:\r\n", "Host: a b\r\n", "Host: a,b/c\r\n", "Host: user@a\r\n",
        "Host: a:8x\r\n", "Host: a:1:2\r\n", "Host: [::1\r\n", "Host: []\r\n", "Host: [::1]8\r\n", "Host: a%4\r\n",
        "Host: http://a\r\n", "Host: \xc3\xa4\r\n"}) {
    connect();
    send(get + bad + "\r\n");
    EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 400 ")) << bad;
    EXPECT_TRUE(wire_->finished) << bad;
  }
  EXPECT_TRUE(seen_.empty());
  connect();
  send("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n");
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.0 400 "));
  EXPECT_TRUE(seen_.empty());
  for (const std::string good : {"", "a", "a:", "a:80", "my_host-1.example.org:8080", "127.0.0.1:1", "[::1]",
                                 "[fe80::1]:80", "[v1.a:b]", "a%c3%a4"}) {
    connect();
    seen_.clear();
    send(get + "Host: " + good + "\r\n\r\n");
    EXPECT_EQ(seen_.size(), 1u) << good << wire_->out;
  }
  connect();
  send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.0 200 "));
}

// What follows such a request must not be taken for the next one.
TEST_F(HttpSessionTest, TakesNoOtherTransferCodingThanChunked) {
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n", body = "\r\n5\r\nhello\r\n0\r\n\r\n";
  for (const auto& [codings, status] :
       {std::pair("Transfer-Encoding: gzip\r\n", "400"), std::pair("Transfer-Encoding: gzip, chunked\r\n", "501"),
        std::pair("Transfer-Encoding: chunked, chunked\r\n", "501"),
        std::pair("Transfer-Encoding: identity\r\n", "400"), std::pair("Transfer-Encoding: \r\n", "400"),
        std::pair("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", "400")}) {
    connect();
    send(post + codings + body + kPost);
    EXPECT_THAT(wire_->out, StartsWith(std::string("HTTP/1.1 ") + status)) << codings;
    EXPECT_TRUE(wire_->finished) << codings;
    EXPECT_TRUE(seen_.empty()) << codings;
  }
  connect();
  send(post + "Transfer-Encoding:  Chunked \r\n" + body);
  ASSERT_EQ(seen_.size(), 1u);
  EXPECT_EQ(seen_[0].body, "hello");
}

TEST_F(HttpSessionTest, LettersOfAnExpectationMayBeLarge) {
  send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\n");
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 100 "));
}

TEST_F(HttpSessionTest, ATargetMayBeAWholeAddress) {
  send(
      "GET http://h:80/x?y=http://z HTTP/1.1\r\nHost: h\r\n\r\nGET http://h HTTP/1.1\r\nHost: h\r\n\r\nGET /a://b "
      "HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_EQ(seen_.size(), 3u);
  EXPECT_EQ(seen_[0].path, "/x");
  EXPECT_EQ(seen_[0].query, "y=http://z");
  EXPECT_EQ(seen_[1].path, "/");
  EXPECT_EQ(seen_[2].path, "/a://b");
}

TEST_F(HttpSessionTest, WhatIsNotModifiedHasNoLength) {
  answer_at_once_ = false;
  send(kPost);
  open_->reply({.status = 304});
  wire_->run();
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 304 Not Modified\r\n"));
  EXPECT_THAT(wire_->out, Not(HasSubstr("Content-Length")));
}

TEST_F(HttpSessionTest, LimitsTime) {
  later(std::chrono::seconds(70));
  EXPECT_FALSE(wire_->closed);
  later(std::chrono::seconds(80));  // no request was sent
  EXPECT_TRUE(wire_->closed);

  connect();
  send("GET / HT");
  later(std::chrono::seconds(11));  // a header that never ends
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 408 "));

  connect();
  send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe");
  later(std::chrono::seconds(11));
  EXPECT_EQ(wire_->out, "");
  later(std::chrono::seconds(61));
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 408 "));
  EXPECT_EQ(host_.bodies, 0u);
}

TEST_F(HttpSessionTest, AsksForTheBodyWhereTheClientWaits) {
  send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(wire_->out, "HTTP/1.1 100 Continue\r\n\r\n");
  send("hello");
  EXPECT_THAT(wire_->out, HasSubstr("<hello>"));
}

TEST_F(HttpSessionTest, StreamsInChunks) {
  answer_at_once_ = false;
  send(kPost);
  open_->begin_stream({.content_type = "text/event-stream"});
  open_->write("data: 1\n\n");
  wire_->run();
  EXPECT_THAT(wire_->out, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_TRUE(wire_->out.ends_with("9\r\ndata: 1\n\n\r\n"));
  later(std::chrono::seconds(11));
  EXPECT_TRUE(wire_->out.ends_with(": keep-alive\n\n\r\n")) << wire_->out;
  open_->end_stream();
  wire_->run();
  EXPECT_TRUE(wire_->out.ends_with("0\r\n\r\n"));
  EXPECT_FALSE(open_->gone());
  send(kPost);  // the connection stays open
  EXPECT_EQ(seen_.size(), 2u);
}

TEST_F(HttpSessionTest, StreamsAreWrittenAtOnceWhereTheWireCan) {
  answer_at_once_ = false;
  wire_->at_once = true;
  send(kPost);
  open_->begin_stream({.content_type = "text/event-stream"});
  open_->write("early;");  // before the head is written
  wire_->run();
  EXPECT_TRUE(wire_->out.ends_with("6\r\nearly;\r\n"));
  wire_->out.clear();
  open_->write("one");
  EXPECT_EQ(wire_->out, "3\r\none\r\n") << "nothing had to run for it";
  later(std::chrono::seconds(60));
  open_->write("two");
  open_->end_stream();
  wire_->run();
  EXPECT_EQ(wire_->out, "3\r\none\r\ne\r\n: keep-alive\n\n\r\n3\r\ntwo\r\n0\r\n\r\n");
  EXPECT_FALSE(wire_->closed);
}

TEST_F(HttpSessionTest, PiecesStayInOrderWhenTheWireTakesLittle) {
  answer_at_once_ = false;
  wire_->at_once = true;
  const auto seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  send(kPost);
  open_->begin_stream({.content_type = "text/event-stream"});
  wire_->run();
  wire_->out.clear();
  std::string expected;
  for (int i = 0; i < 500; ++i) {
    wire_->write_at_most = random() % 3 == 0 ? 1 + random() % 8 : 1 << 20;
    open_->write("abcd");
    expected += "4\r\nabcd\r\n";
    if (random() % 2 == 0) wire_->run();
  }
  open_->end_stream();
  wire_->run();
  EXPECT_EQ(wire_->out, expected + "0\r\n\r\n");
}

TEST_F(HttpSessionTest, SignsOfLifeNeverComeInFrontOfTheRestOfAPiece) {
  answer_at_once_ = false;
  wire_->at_once = true;
  send(kPost);
  open_->begin_stream({.content_type = "text/event-stream"});
  wire_->run();
  wire_->out.clear();
  wire_->write_at_most = 5;
  open_->write("abcd");
  ASSERT_EQ(wire_->out, "4\r\nab") << "the rest waits for the I/O thread";
  later(std::chrono::seconds(60));
  open_->end_stream();
  wire_->run();
  EXPECT_TRUE(wire_->out.starts_with("4\r\nabcd\r\n")) << wire_->out;
  EXPECT_TRUE(wire_->out.ends_with("0\r\n\r\n")) << wire_->out;
}

TEST_F(HttpSessionTest, AWriteAtOnceNoticesAClientThatLeft) {
  answer_at_once_ = false;
  wire_->at_once = true;
  send(kPost);
  open_->begin_stream({.content_type = "text/event-stream"});
  wire_->run();
  bool gone = false;
  open_->on_gone([&] { gone = true; });
  wire_->left = true;
  open_->write("one");
  open_->write("two");
  wire_->run();
  EXPECT_TRUE(gone);
  EXPECT_TRUE(wire_->closed);
}

TEST_F(HttpSessionTest, OldClientsGetTheStreamPlain) {
  answer_at_once_ = false;
  send("GET / HTTP/1.0\r\n\r\n");
  open_->begin_stream({.content_type = "text/event-stream"});
  open_->write("data: 1\n\n");
  open_->end_stream();
  wire_->run();
  EXPECT_TRUE(wire_->out.ends_with("\r\n\r\ndata: 1\n\n"));
  EXPECT_TRUE(wire_->finished);
}

TEST_F(HttpSessionTest, NoticesAClientThatLeaves) {
  answer_at_once_ = false;
  send(kPost);
  int gone = 0;
  open_->on_gone([&] { ++gone; });
  open_->begin_stream({.content_type = "text/event-stream"});
  wire_->run();
  EXPECT_EQ(gone, 0);
  wire_->in_ended = true;
  wire_->run();
  EXPECT_EQ(gone, 1);
  EXPECT_TRUE(open_->gone());
}

TEST_F(HttpSessionTest, DropsASlowReader) {
  answer_at_once_ = false;
  host_.limits.backlog = 1000;
  send(kPost);
  bool gone = false;
  open_->on_gone([&] { gone = true; });
  wire_->stalled = true;
  open_->begin_stream({.content_type = "text/event-stream"});
  for (int i = 0; i < 9; ++i) open_->write(std::string(90, 'x'));
  wire_->run();
  EXPECT_FALSE(gone);
  for (int i = 0; i < 9; ++i) open_->write(std::string(90, 'x'));
  wire_->run();
  EXPECT_TRUE(gone);
  EXPECT_TRUE(wire_->closed);

  connect();
  send(kPost);
  wire_->stalled = true;
  open_->begin_stream({.content_type = "text/event-stream"});
  wire_->run();
  later(std::chrono::seconds(31));  // a small answer that the client does not read
  EXPECT_TRUE(wire_->closed);
}

TEST_F(HttpSessionTest, OnePieceMayExceedTheBacklog) {
  answer_at_once_ = false;
  host_.limits.backlog = 1000;
  send(kPost);
  bool gone = false;
  open_->on_gone([&] { gone = true; });
  open_->begin_stream({.content_type = "text/event-stream"});
  open_->write(std::string(5000, 'x'));  // a held answer leaves in one piece
  open_->end_stream();
  wire_->run();
  EXPECT_FALSE(gone);
  EXPECT_FALSE(wire_->closed);
}

TEST_F(HttpSessionTest, DropsAnExchangeThatNobodyAnswers) {
  answer_at_once_ = false;
  send(kPost);
  open_.reset();
  wire_->run();
  EXPECT_THAT(wire_->out, StartsWith("HTTP/1.1 500 "));

  connect();
  send(kPost);
  open_->begin_stream({.content_type = "text/event-stream"});
  open_.reset();
  wire_->run();
  EXPECT_TRUE(wire_->closed);  // closed: a truncated stream must not look complete
  EXPECT_FALSE(wire_->out.ends_with("0\r\n\r\n"));
}

TEST_F(HttpSessionTest, DrainsWhenAnswered) {
  session_->drain();
  EXPECT_TRUE(wire_->closed);

  connect();
  answer_at_once_ = false;
  send(kPost);
  host_.draining = true;
  session_->drain();
  EXPECT_FALSE(wire_->closed);
  open_->reply({.body = "late"});
  wire_->run();
  EXPECT_THAT(wire_->out, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(wire_->out, HasSubstr("late"));
  EXPECT_TRUE(wire_->finished);
}

TEST_F(HttpSessionTest, HeadHasNoBody) {
  send("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(wire_->out, HasSubstr("Content-Length: 2\r\n"));
  EXPECT_TRUE(wire_->out.ends_with("\r\n\r\n"));
}

}  // namespace
}  // namespace millrace
