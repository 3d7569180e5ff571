#include "cli/chat/conversation.h"

#include <algorithm>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "base/nearest.h"
#include "base/tell.h"
#include "base/write_file.h"
#include "cli/read_text.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

bool is_text(const Json& message, const char* key) { return message.contains(key) && message[key].is_string(); }

bool is_by(const Json& message, const char* role) { return message["role"] == role; }

void require_option(const CLI::App& parser, const std::string& name) {
  if (parser.get_option_no_throw("--" + name) != nullptr) return;
  std::vector<std::string> known{"thinking"};
  for (const CLI::Option* option : parser.get_options()) {
    for (const std::string& one : option->get_lnames()) known.push_back(one);
  }
  const std::string hint = did_you_mean(name, known);
  fail(ErrorKind::Usage, "/set {}: there is no such option{}{}", name, hint.empty() ? "" : "; ", hint);
}

}  // namespace

Conversation::Conversation(Asker& asker, const TextModel& text, int64_t context, SamplingOptions sampling)
    : asker_(asker),
      text_(text),
      context_(context),
      options_(std::move(sampling)),
      params_(sampling_params(options_, text.sampling)),
      seed_(params_.seed) {}

void Conversation::say(const std::string& message, AnswerView view) {
  messages_.push_back({{"role", "user"}, {"content", message}});
  try {
    answer(view);
  } catch (const Error&) {
    messages_.erase(messages_.size() - 1);  // the message got no answer: remove it from the history
    throw;
  }
}

void Conversation::retry(AnswerView view) {
  if (messages_.empty() || !is_by(messages_.back(), "assistant")) fail(ErrorKind::Usage, "/retry: there is no answer");
  const Json old = messages_.back();
  messages_.erase(messages_.size() - 1);
  try {
    answer(view);
  } catch (const Error&) {
    messages_.push_back(old);
    throw;
  }
}

void Conversation::undo() {
  const auto is_user = [](const Json& m) { return is_by(m, "user"); };
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(), is_user);
  if (last == messages_.rend()) fail(ErrorKind::Usage, "/undo: there is no message");
  messages_.erase(last.base() - 1, messages_.end());
  first_ = std::min(first_, messages_.size());
}

void Conversation::reset() {
  const std::string kept = system();
  messages_ = Json::array();
  first_ = 0;
  set_system(kept);
}

std::string Conversation::system() const { return has_system() ? messages_[0]["content"].get<std::string>() : ""; }

void Conversation::set_system(const std::string& text) {
  if (has_system()) messages_.erase(0);
  if (!text.empty()) messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", text}});
}

void Conversation::set(const std::string& option, const std::string& value) {
  if (option == "thinking") return asker_.set_thinking(value);
  SamplingOptions changed = options_;
  if (option == "stop") changed.stop.clear();
  CLI::App parser;
  parser.set_help_flag();
  add_sampling_options(parser, changed);
  require_option(parser, option);
  try {
    parser.parse(std::vector<std::string>{"--" + option + "=" + value});
  } catch (const CLI::ConversionError&) {
    fail(ErrorKind::Usage, "/set {} {}: not a number", option, value);
  } catch (const CLI::Error& e) {
    fail(ErrorKind::Usage, "/set {} {}: {}", option, value, e.what());
  }
  params_ = sampling_params(changed, text_.sampling);
  options_ = std::move(changed);
  if (option == "seed") {
    seed_ = params_.seed;
    answers_ = 0;
  }
  params_.seed = seed_;
}

// The system message and the turns that are not left out.
Json Conversation::shown() const {
  Json list = Json::array();
  if (has_system()) list.push_back(messages_[0]);
  for (size_t i = std::max<size_t>(first_, has_system() ? 1 : 0); i < messages_.size(); ++i)
    list.push_back(messages_[i]);
  return list;
}

// Leaves out the oldest turn. False: the last message is all that is left.
bool Conversation::drop_turn() {
  size_t next = std::max<size_t>(first_, has_system() ? 1 : 0) + 1;
  while (next < messages_.size() && !is_by(messages_[next], "user")) ++next;
  if (next >= messages_.size()) return false;
  first_ = next;
  return true;
}

Prompt Conversation::prompt() {
  Prompt prompt = asker_.chat(shown());
  const int64_t answer = std::min(options_.max_tokens > 0 ? options_.max_tokens : context_ / 4, context_ / 2);
  const int64_t room = context_ - answer;
  const auto size = [&] { return static_cast<int64_t>(prompt.tokens.size()); };
  if (size() <= room) return prompt;
  // More than necessary: each time the beginning of the prompt changes, all of it is computed again.
  while (size() > room * 3 / 4 && drop_turn()) {
    prompt = asker_.chat(shown());
    if (!std::exchange(told_, true))
      tell(Stream::Stderr, "the context of {} tokens is full: the oldest turns are left out from now on\n", context_);
  }
  return prompt;
}

void Conversation::answer(AnswerView& view) {
  params_.seed = seed_ + answers_++;
  last_ = asker_.ask(prompt(), options_, params_, [&](const AnswerPiece& piece) { view.take(piece); });
  view.finish(last_.completion.interrupted);
  clear_interrupt();
  messages_.push_back({{"role", "assistant"}, {"content", last_.content}});
  if (!last_.reasoning.empty()) messages_.back()["reasoning_content"] = last_.reasoning;
}

void Conversation::save(const std::string& path) const { write_file(path, json_text(messages_, 2) + "\n"); }

void Conversation::load(const std::string& path) {
  Json json = read_ordered_json(read_file_or_stdin(path));
  if (json.is_object() && json.contains("messages")) json = Json(json["messages"]);
  const auto is_message = [](const Json& m) { return m.is_object() && is_text(m, "role") && is_text(m, "content"); };
  if (!json.is_array() || !std::all_of(json.begin(), json.end(), is_message))
    fail(ErrorKind::BadFile, "{}: is not a conversation: a JSON list of messages with role and content", path);
  messages_ = std::move(json);
  first_ = 0;
  last_ = {};
}

std::string Conversation::stats() const {
  const Completion& c = last_.completion;
  const size_t used = static_cast<size_t>(c.prompt_tokens) + c.tokens.size();
  std::string text = fmt::format("{} messages, {} of {} tokens of the context\n", messages_.size(), used, context_);
  if (c.tokens.empty()) return text;
  return text + fmt::format(
                    "last answer: {} tokens, {:.1f} tokens/s; {} prompt tokens, {} of them cached; first token after "
                    "{:.0f} ms; seed {}\n",
                    c.tokens.size(), c.tokens_per_second, c.prompt_tokens, c.cached_tokens, c.ttft_ms, params_.seed);
}

}  // namespace millrace
