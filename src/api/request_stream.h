// A running request of the library. The engine's thread fills a queue with tokens, and the reader's thread makes text
// of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/prepared.h"
#include "engine/choice_text.h"
#include "text/answer/answer_parser.h"

namespace millrace {

struct StreamDelta {
  int32_t choice = 0;
  millrace_finish finish = MILLRACE_RUNNING;
  std::string text, reasoning;
  Json tool_calls = Json::array();
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;
};

class RequestStream {
 public:
  struct Wake {
    bool at_end_only = false;
    void (*on_ready)(void*) = nullptr;  // called with the queue locked, so that none comes after close()
    void* user = nullptr;
  };

  RequestStream(std::shared_ptr<ServedModel> model, PreparedRequest prepared, const Wake& wake);
  ~RequestStream();  // cancels
  RequestStream(const RequestStream&) = delete;

  enum class Got { Delta, End, Nothing };
  // All that has arrived for one choice. `patience`: nullopt waits without limit. Throws the error that ended the
  // request.
  Got next(std::optional<std::chrono::milliseconds> patience, StreamDelta& delta);
  void cancel();
  millrace_usage usage() const;

 private:
  struct Arrival {
    int32_t choice, token;
    FinishReason finish;
    bool is_end;
    std::optional<TokenLogprobs> logprobs;
    std::string error;
  };
  // Shared with the engine, whose last emission may come after this object is gone.
  struct Queue {
    mutable std::mutex mutex;
    std::condition_variable arrived;
    Wake wake;
    std::vector<Arrival> arrivals;
    int32_t running = 0;  // choices without a finish reason
    int32_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
    void push(const Emission& emission);
    bool ready() const { return wake.at_end_only ? running == 0 : !arrivals.empty(); }
  };
  struct Choice {
    std::unique_ptr<ChoiceText> text;
    std::optional<AnswerParser> parser;
    bool ended = false;
  };

  bool take(Arrival& arrival, StreamDelta& delta);  // false: the arrival adds nothing
  void say(Choice& choice, std::string_view text, bool last, StreamDelta& delta);
  void finish(Choice& choice, FinishReason reason, StreamDelta& delta);

  std::shared_ptr<ServedModel> model_;
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  RequestId id_ = 0;
  bool one_call_;
  std::vector<Choice> choices_;
  size_t open_;
  std::vector<Arrival> pending_;  // taken from the queue, from next_ on not yet read
  size_t next_ = 0;
};

}  // namespace millrace
