// The whole server in one process, over real sockets, so that sanitizers see its threads.
#include "server/api_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "formats/weight_source.h"

namespace millrace {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class Client {
 public:
  explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    const timeval patience{30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;

  void send(const std::string& text) const {
    EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL), ssize_t(text.size()));
  }
  std::string read_some() const {
    char buffer[4096];
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : "";
  }
  std::string read_all() const {
    std::string all;
    for (std::string some = read_some(); !some.empty(); some = read_some()) all += some;
    return all;
  }

 private:
  int fd_;
};

class ApiServerTest : public testing::Test {
 protected:
  void start(ApiServerOptions options = {}) {
    options.http.port = 0;
    options.names = {"golden"};
    server_ = std::make_unique<ApiServer>(std::move(options));
    server_->start([] {
      const std::shared_ptr<const WeightSource> source =
          open_weights(MILLRACE_TEST_DATA "/goldens/llama_gqa/model.gguf");
      LoadedModel loaded;
      loaded.text = load_text_model(*source);
      loaded.runner = std::make_unique<Runner>(source, LoadOptions{.threads = 2, .sequences = 8});
      loaded.runner->load();
      return loaded;
    });
  }

  void wait_ready() {
    for (int i = 0; i < 600 && server_->model().state() == ServedModel::State::Loading; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ASSERT_EQ(server_->model().state(), ServedModel::State::Ready) << server_->model().problem();
  }

  static std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
    return "POST " + path + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: application/json\r\n" +
           headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  std::string ask(const std::string& request) const {
    const Client client(server_->port());
    client.send(request);
    return client.read_all();
  }

  std::unique_ptr<ApiServer> server_;
};

TEST_F(ApiServerTest, AnswersWhileItLoadsAndAfter) {
  start();
  EXPECT_THAT(ask("GET /health/live HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.0 200"));
  wait_ready();
  EXPECT_THAT(ask("GET /health/ready HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.0 200"));
  const std::string whole = ask(post("/v1/completions", R"({"prompt":"abc","max_tokens":8,"temperature":0})"));
  EXPECT_THAT(whole, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(whole, HasSubstr(R"("completion_tokens":8)"));
  EXPECT_THAT(ask(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})")),
              HasSubstr("no_chat_template"));
  EXPECT_THAT(ask("GET /metrics HTTP/1.0\r\n\r\n"), HasSubstr("vllm:generation_tokens_total"));
}

TEST_F(ApiServerTest, ManyClientsAtOnceSomeOfThemRude) {
  start();
  wait_ready();
  const std::string body = R"({"prompt":"abc","max_tokens":40,"temperature":0,"ignore_eos":true,"stream":true})";
  const std::string expected = ask(post("/v1/completions", body));
  const auto events = [](const std::string& text) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find("data: ", at)) != std::string::npos; ++at) ++n;
    return n;
  };
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 24; ++i) {
    threads.emplace_back([&, i] {
      const Client client(server_->port());
      client.send(post("/v1/completions", body));
      if (i % 3 == 0) return;  // disconnects at once
      if (i % 3 == 1) {
        client.read_some();  // disconnects in the middle
        return;
      }
      if (events(client.read_all()) == events(expected)) ++good;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 8);
}

TEST_F(ApiServerTest, KeysAreAskedFor) {
  ApiServerOptions options;
  options.keys.add("alice secret-key-1\n", "test");
  start(std::move(options));
  EXPECT_THAT(ask("GET /v1/models HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.0 401"));
  EXPECT_THAT(ask("GET /v1/models HTTP/1.0\r\nAuthorization: Bearer secret-key-1\r\n\r\n"), StartsWith("HTTP/1.0 200"));
  EXPECT_THAT(ask("GET /health/live HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.0 200"));
  wait_ready();
}

TEST_F(ApiServerTest, StopsUnderLoad) {
  start();
  wait_ready();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Client client(server_->port());
      client.send(
          post("/v1/completions", R"({"prompt":"abc","max_tokens":450,"ignore_eos":true,"n":4,"stream":true})"));
      const std::string all = client.read_all();
      EXPECT_TRUE(all.find("[DONE]") != std::string::npos || all.find("\"error\"") != std::string::npos)
          << all.substr(0, 300);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  server_->stop(std::chrono::milliseconds(100));
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace millrace
