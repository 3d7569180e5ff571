// The history of a chat and its next answer. The prompt leaves out the oldest turns if the context is too small.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/ask.h"
#include "cli/chat/answer_view.h"
#include "cli/sampling_options.h"

namespace millrace {

class Conversation {
 public:
  Conversation(Asker& asker, const TextModel& text, int64_t context, SamplingOptions sampling);

  void say(const std::string& message, AnswerView view);
  void retry(AnswerView view);  // throws Usage where there is no answer
  void undo();                  // the last message and its answer
  void reset();                 // all but the system message
  void set_system(const std::string& text);
  std::string system() const;

  // `option` is a sampling option of the command line, without the dashes, or "thinking". Throws Usage.
  void set(const std::string& option, const std::string& value);
  const SamplingParams& sampling() const { return params_; }

  void save(const std::string& path) const;
  void load(const std::string& path);  // the conversation stays as it is if the file is no conversation
  std::string stats() const;
  size_t messages() const { return messages_.size(); }
  const std::string& last_reasoning() const { return last_.reasoning; }

 private:
  bool has_system() const { return !messages_.empty() && messages_[0]["role"] == "system"; }
  Prompt prompt();
  nlohmann::ordered_json shown() const;
  bool drop_turn();
  void answer(AnswerView& view);

  Asker& asker_;
  const TextModel& text_;
  int64_t context_;
  SamplingOptions options_;
  SamplingParams params_;
  uint64_t seed_;         // of the first answer; each further answer has the next
  uint64_t answers_ = 0;  // drawn from this seed
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  size_t first_ = 0;  // of the messages in the prompt, besides the system message
  bool told_ = false;
  Answer last_;
};

}  // namespace millrace
