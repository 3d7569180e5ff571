// The parts of the load generator, without a server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "cli/load/http_answer.h"
#include "cli/load/load_report.h"
#include "fresh_seed.h"

namespace millrace {
namespace {

TEST(Percentiles, AreThoseOfNumpy) {
  const Percentiles p = percentiles({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(p.p50, 2.5);
  EXPECT_DOUBLE_EQ(p.p90, 3.7);
  EXPECT_NEAR(p.p99, 3.97, 1e-12);
  EXPECT_DOUBLE_EQ(p.mean, 2.5);
  EXPECT_EQ(percentiles({}).p99, 0);
  EXPECT_EQ(percentiles({7}).p50, 7);
}

TEST(Arrivals, ComeAtTheRate) {
  LoadPlan plan;
  plan.rate = 50;
  plan.seed = fresh_seed();
  Arrivals arrivals(plan), again(plan);
  double last = 0;
  int early = 0;
  for (int i = 0; i < 10000; ++i) {
    const double at = arrivals.next();
    ASSERT_EQ(at, again.next());
    ASSERT_GE(at, last);
    early += at - last < 1 / plan.rate;
    last = at;
  }
  EXPECT_NEAR(last, 200, 12) << "seed " << plan.seed;     // six standard deviations
  EXPECT_NEAR(early, 6321, 300) << "seed " << plan.seed;  // a share of 1 - 1/e of exponential gaps is below the mean
}

TEST(LoadPrompt, SharesItsPrefix) {
  LoadPlan plan;
  plan.words = 20;
  plan.prefix_words = 30;
  const std::string a = load_prompt(plan, 0), b = load_prompt(plan, 1);
  EXPECT_EQ(std::count(a.begin(), a.end(), ' '), 49);
  EXPECT_NE(a, b);
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  EXPECT_GE(std::count(a.begin(), differ, ' '), 30);
  plan.seed = 1;
  EXPECT_NE(load_prompt(plan, 0), a);
}

TEST(LoadRequest, IsAStreamOfExactLength) {
  LoadPlan plan;
  plan.model = "m";
  plan.tokens = 7;
  const auto body = nlohmann::json::parse(load_request(plan, 0));
  EXPECT_EQ(body["max_tokens"], 7);
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);
}

constexpr const char* kStream =
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n"
    ": keep-alive\n\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n"
    "data:{\"choices\":[{\"delta\":{\"reasoning_content\":\"b\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
    "data: "
    "{\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_"
    "tokens\":4}}}\n\n"
    "data: [DONE]\n\n";

TEST(AnswerStream, ReadsAStreamHoweverItIsCut) {
  const std::string text = kStream;
  for (size_t size = 1; size < 40; ++size) {
    LoadedRequest request;
    AnswerStream stream(request);
    for (size_t at = 0; at < text.size(); at += size)
      stream.feed(std::string_view(text).substr(at, size), static_cast<double>(at));
    stream.end();
    EXPECT_TRUE(stream.done());
    // A piece with text, one without, and one of reasoning, each timed when its line is complete.
    const auto arrival = [&](const char* part) {
      const size_t newline = text.find('\n', text.find(part));
      return static_cast<double>(newline / size * size);
    };
    EXPECT_EQ(request.pieces, (std::vector{arrival("\"a\""), arrival("\"\"}}]}\n"), arrival("\"b\"")}));
    EXPECT_EQ(request.tokens, 3);
    EXPECT_EQ(request.prompt_tokens, 5);
    EXPECT_EQ(request.cached_tokens, 4);
  }
}

TEST(AnswerStream, KeepsAnError) {
  LoadedRequest request;
  AnswerStream stream(request);
  stream.feed("data: {\"error\": {\"message\": \"full\"}}\n\ndata: nonsense\n\ndata: [1]\n\n", 0);
  stream.end();
  EXPECT_EQ(request.problem, "full");
}

TEST(HttpAnswer, ReadsChunksHoweverTheyAreCut) {
  const std::string text =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: y\r\ntransfer-Encoding: Chunked\r\n\r\n"
      "5\r\nab\r\nc\r\n1A;note=1\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\r\n";
  for (size_t size = 1; size <= text.size(); ++size) {
    HttpAnswer answer;
    for (size_t at = 0; at < text.size(); at += size) {
      const bool whole = answer.feed(std::string_view(text).substr(at, size), static_cast<double>(at));
      EXPECT_EQ(whole, at + size >= text.size());
    }
    EXPECT_EQ(answer.status(), 200);
    std::string body;
    answer.for_pieces([&](std::string_view piece, double time) {
      body += piece;
      const size_t last = body.size() <= 5 ? text.find("ab\r\nc") + body.size() : text.find("abcdef") + body.size() - 5;
      EXPECT_EQ(time, static_cast<double>((last - 1) / size * size)) << "cut by " << size << " at " << body.size();
    });
    EXPECT_EQ(body, "ab\r\ncabcdefghijklmnopqrstuvwxyz");
  }
}

TEST(HttpAnswer, KnowsTheEndOfOtherAnswers) {
  HttpAnswer counted;
  EXPECT_FALSE(counted.feed("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nab", 1));
  EXPECT_TRUE(counted.feed("cd", 2));
  EXPECT_EQ(counted.status(), 429);
  HttpAnswer open;
  EXPECT_FALSE(open.feed("HTTP/1.0 200 OK\r\n\r\nabc", 1));
  EXPECT_TRUE(open.close());
  HttpAnswer cut;
  EXPECT_FALSE(cut.feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 1));
  EXPECT_FALSE(cut.close());
  HttpAnswer nonsense;
  EXPECT_THROW(nonsense.feed("SSH-2.0-OpenSSH_9.2\r\n\r\n", 1), Error);
  HttpAnswer no_chunks;
  EXPECT_THROW(no_chunks.feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 1), Error);
}

TEST(LoadReport, AddsUp) {
  LoadedRequest a, b, broken;
  a.begin = 0;
  a.pieces = {0.5, 0.6, 0.8};
  a.end = 0.9;
  a.tokens = 3;
  a.prompt_tokens = 10;
  b = a;
  b.begin = 0.1;
  b.end = 1.0;
  b.cached_tokens = 5;
  broken.problem = "full";
  const LoadReport report = summarise({a, b, broken});
  EXPECT_EQ(report.whole, 2u);
  EXPECT_EQ(report.failed, 1u);
  EXPECT_EQ(report.problem, "full");
  EXPECT_NEAR(report.tokens_per_second, 6, 1e-9);
  EXPECT_NEAR(report.cached_share, 0.25, 1e-9);
  EXPECT_NEAR(report.ttft.p50, 450, 1e-6);
  EXPECT_NEAR(report.tpot.p50, 150, 1e-6);
  EXPECT_NEAR(report.itl.p50, 150, 1e-6);
  EXPECT_EQ(report.itl_ms.size(), 4u);
  const std::string svg = plot_svg(report, "a < b");
  EXPECT_THAT(svg, testing::HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  EXPECT_EQ(summarise({}).tokens_per_second, 0);
}

}  // namespace
}  // namespace millrace
