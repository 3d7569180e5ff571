// Background responses: recorded, read again from any event, bounded and forgotten in time.
#include "server/kept_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/access_log.h"
#include "server/metrics.h"
#include "server/task_queue.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

class EventReader final : public HttpConnection {
 public:
  void post(std::function<void()> task) override { task(); }
  bool write_now(std::string_view bytes) override {
    text += bytes;
    return true;
  }
  void answer(HttpReply reply) override { text += reply.body; }
  void begin_stream(HttpReply) override { begun = true; }
  void write(std::string bytes) override { text += bytes; }
  void end_stream() override { ended = true; }

  std::string text;
  bool begun = false, ended = false;
};

std::string delta(int number, const std::string& text) {
  const Json json{
      {"type", "response.output_text.delta"}, {"sequence_number", number}, {"item_id", "m"}, {"delta", text}};
  return "event: response.output_text.delta\ndata: " + to_text(json) + "\n\n";
}

std::string with_response(const char* type, const char* status) {
  const Json json{{"type", type}, {"response", {{"id", "resp_1"}, {"status", status}}}};
  return std::string("event: ") + type + "\ndata: " + to_text(json) + "\n\n";
}

struct KeptStreamTest : ::testing::Test {
  std::shared_ptr<Call> client(const std::shared_ptr<HttpConnection>& connection) {
    auto exchange = std::make_shared<HttpExchange>(connection, HttpRequest{.method = "GET", .path = "/"});
    return std::make_shared<Call>(std::move(exchange), "id", HttpHeaders{}, metrics, log);
  }

  std::shared_ptr<EventReader> read(KeptStream& stream, size_t first = 0) {
    auto connection = std::make_shared<EventReader>();
    stream.attach(client(connection), first);
    return connection;
  }

  KeptLimits limits() {
    KeptLimits limits;
    limits.now = [this] { return time; };
    return limits;
  }

  Metrics metrics{"test"};
  AccessLog log{AccessLog::Format::Json};
  TaskQueue workers{1};
  KeptLimits::Clock::time_point time{};
};

TEST_F(KeptStreamTest, ReadersMissNothingWhereverTheyBegin) {
  KeptStreams all(workers, limits());
  const auto stream = all.begin("ann");
  stream->write_now(with_response("response.created", "in_progress") + delta(1, "a"));
  const auto early = read(*stream);
  stream->write_now(delta(2, "b"));
  const auto late = read(*stream, 2);
  stream->write_now(with_response("response.completed", "completed"));
  EXPECT_EQ(stream->response()["status"], "in_progress");
  stream->end_stream();
  EXPECT_TRUE(early->ended && late->ended);
  EXPECT_THAT(early->text, HasSubstr(delta(1, "a") + delta(2, "b")));
  EXPECT_THAT(late->text, Not(HasSubstr(delta(1, "a"))));
  EXPECT_THAT(late->text, HasSubstr(delta(2, "b")));
  EXPECT_EQ(read(*stream)->text, early->text);
  EXPECT_EQ(stream->response()["status"], "completed");
  EXPECT_THROW(read(*stream, 9), ApiError);
}

TEST_F(KeptStreamTest, LongReplaysAreJoined) {
  std::string text;
  std::vector<std::string> events{with_response("response.created", "in_progress")};
  for (int i = 1; i <= 100; ++i) {
    text += std::to_string(i);
    events.push_back(delta(i, std::to_string(i)));
  }
  EXPECT_EQ(joined_events(events), events[0] + delta(100, text));
  Json other = Json::parse(delta(101, "x").substr(delta(101, "x").find('{')));
  other["item_id"] = "n";
  const std::string apart = "event: response.output_text.delta\ndata: " + to_text(other) + "\n\n";
  EXPECT_EQ(joined_events({events[1], apart}), events[1] + apart) << "deltas of different items stay apart";

  KeptStreams all(workers, limits());
  const auto stream = all.begin("");
  std::string whole;
  for (int i = 0; i < 4000; ++i) stream->write_now(delta(i, "0123456789"));
  for (int i = 0; i < 4000; ++i) whole += "0123456789";
  const auto reader = read(*stream);
  EXPECT_EQ(reader->text, delta(3999, whole));
  stream->write_now(delta(4000, "!"));
  EXPECT_EQ(reader->text, delta(3999, whole) + delta(4000, "!"));
}

TEST_F(KeptStreamTest, OnlyTheOwnerFindsIt) {
  KeptStreams all(workers, limits());
  const auto stream = all.begin("ann");
  all.keep("resp_1", stream);
  EXPECT_EQ(all.find("resp_1", "ann"), stream);
  EXPECT_EQ(all.find("resp_1", "ben"), nullptr);
  EXPECT_EQ(all.find("resp_1", ""), nullptr);
  EXPECT_EQ(all.find("resp_2", "ann"), nullptr);
}

TEST_F(KeptStreamTest, NumberBytesAndTimeAreBounded) {
  KeptLimits small = limits();
  small.running = 2;
  small.stream_bytes = 1000;
  small.all_bytes = 1500;
  KeptStreams all(workers, small);
  const auto a = all.begin(""), b = all.begin("");
  all.keep("a", a);
  all.keep("b", b);
  EXPECT_THROW(all.begin(""), ApiError);
  a->write_now(with_response("response.created", "in_progress"));
  for (int i = 1; i < 20; ++i) a->write_now(delta(i, std::string(60, 'x')));
  EXPECT_LT(a->bytes(), 1000U) << "a stream that is too long is not recorded";
  EXPECT_THROW(read(*a), ApiError);
  a->write_now(with_response("response.completed", "completed"));
  a->end_stream();
  EXPECT_EQ(a->response()["status"], "completed");
  for (int i = 0; i < 5; ++i) b->write_now(delta(i, std::string(60, 'x')));
  b->end_stream();
  EXPECT_EQ(all.size(), 2U);
  time += 601s;
  EXPECT_EQ(all.size(), 0U);
}

TEST_F(KeptStreamTest, AResponseThatNobodyReadsIsCancelled) {
  KeptStreams all(workers, limits());
  const auto stream = all.begin("");
  bool gone = false;
  const auto call = client(stream);
  call->exchange().on_gone([&] { gone = true; });
  call->usage.prompt_tokens = 7;
  stream->belongs_to(call);
  stream->write_now(with_response("response.created", "in_progress"));
  time += 500s;
  EXPECT_EQ(stream->response()["status"], "in_progress");  // counts as attention
  time += 500s;
  stream->write_now(delta(1, "a"));
  EXPECT_FALSE(gone);
  const auto reader = client(std::make_shared<EventReader>());
  stream->attach(reader, 0);
  time += 5000s;
  stream->write_now(delta(2, "b"));
  EXPECT_FALSE(gone) << "a client reads it";
  reader->exchange().mark_gone();
  time += 601s;
  call->usage.completion_tokens = 3;
  stream->write_now(delta(3, "c"));
  call->usage.completion_tokens = 4;
  EXPECT_TRUE(gone);
  EXPECT_EQ(stream->response()["status"], "cancelled");
  EXPECT_EQ(stream->response()["usage"]["total_tokens"], 7 + 3) << "at the last event";
}

TEST_F(KeptStreamTest, ACancelledResponseKeepsItsOutput) {
  const auto event = [](const Json& json) {
    return "event: " + json["type"].get<std::string>() + "\ndata: " + to_text(json) + "\n\n";
  };
  const Json thought{{"id", "rs_1"}, {"type", "reasoning"}, {"status", "completed"}, {"summary", Json::array()}};
  const Json message{{"id", "m"}, {"type", "message"}, {"status", "in_progress"}, {"content", Json::array()}};
  const Json part{{"type", "output_text"}, {"text", ""}, {"logprobs", Json::array()}};
  Json text = Json::parse(R"({"type": "response.output_text.delta", "output_index": 1, "logprobs": [{"token": "b"}]})");
  text["delta"] = "ab";
  for (const size_t bytes : {size_t{1} << 20, size_t{200}}) {  // the second stream becomes too long to be kept
    KeptLimits some = limits();
    some.stream_bytes = bytes;
    KeptStreams all(workers, some);
    const auto stream = all.begin("");
    stream->write_now(with_response("response.created", "in_progress"));
    const auto reader = read(*stream);
    stream->write_now(event({{"type", "response.output_item.added"}, {"output_index", 0}, {"item", thought}}) +
                      event({{"type", "response.output_item.done"}, {"output_index", 0}, {"item", thought}}));
    stream->write_now(event({{"type", "response.output_item.added"}, {"output_index", 1}, {"item", message}}));
    stream->write_now(event({{"type", "response.content_part.added"}, {"output_index", 1}, {"part", part}}));
    stream->write_now(event(text));
    stream->write_now(event(text));
    stream->cancel();
    const Json response = stream->response();
    EXPECT_EQ(response["id"], "resp_1");
    EXPECT_EQ(response["status"], "cancelled");
    ASSERT_EQ(response["output"].size(), 2U);
    EXPECT_EQ(response["output"][0], thought);
    EXPECT_EQ(response["output"][1]["status"], "incomplete");
    EXPECT_EQ(response["output"][1]["content"][0]["text"], "abab");
    EXPECT_EQ(response["output"][1]["content"][0]["logprobs"].size(), 2U);
    EXPECT_TRUE(reader->ended);
    const Json last{{"type", "response.cancelled"}, {"sequence_number", 7}, {"response", response}};
    EXPECT_TRUE(reader->text.ends_with(event(last))) << reader->text;
    if (bytes > 1000) {
      EXPECT_EQ(read(*stream, 7)->text, event(last));
    } else {
      EXPECT_THROW(read(*stream, 7), ApiError);
    }
  }
}

TEST_F(KeptStreamTest, CancellingEndsReaders) {
  KeptStreams all(workers, limits());
  const auto stream = all.begin("");
  stream->write_now(with_response("response.created", "in_progress"));
  const auto reader = read(*stream);
  stream->cancel();
  EXPECT_TRUE(reader->ended);
  stream->write_now(delta(1, "late"));
  EXPECT_THAT(reader->text, Not(HasSubstr("late")));
  EXPECT_EQ(stream->response()["status"], "cancelled");
}

TEST_F(KeptStreamTest, FailuresAreKept) {
  KeptStreams all(workers, limits());
  const auto stream = all.begin("");
  stream->write_now(with_response("response.created", "in_progress"));
  stream->write_now("data: {\"error\":{\"message\":\"broken\"}}\n\n");
  stream->end_stream();
  EXPECT_EQ(stream->response()["status"], "failed");
  EXPECT_EQ(stream->response()["error"]["message"], "broken");
}

}  // namespace
}  // namespace millrace
