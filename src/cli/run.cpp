// millrace run: one completion, streamed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/tell.h"
#include "cli/ask.h"
#include "cli/draft_options.h"
#include "cli/flush_stdout.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/prompt_text.h"
#include "cli/session_file.h"
#include "cli/token_list.h"

namespace millrace {
namespace {

struct RunOptions {
  ModelOptions model;
  DraftOptions draft;
  SamplingOptions sampling;
  AnswerOptions answer;
  std::string file, session, words, ids;
  std::optional<std::string> prompt, tokens;
  bool chat = false, raw = false;
};

std::string_view reason(FinishReason finish) {
  if (finish == FinishReason::None) return "interrupted";  // Ctrl-C
  return finish == FinishReason::Length ? "length" : "stop";
}

void print_result(const Answer& answer, double load_ms) {
  const Completion& c = answer.completion;
  nlohmann::json json{
      {"text", answer.content},
      {"tokens", c.tokens},
      {"finish_reason", reason(c.finish)},
      {"usage",
       {{"prompt_tokens", c.prompt_tokens},
        {"cached_tokens", c.cached_tokens},
        {"completion_tokens", c.tokens.size()},
        {"drafted", c.accepted_drafts + c.rejected_drafts},
        {"accepted", c.accepted_drafts}}},
      {"timings", {{"load_ms", load_ms}, {"ttft_ms", c.ttft_ms}, {"tokens_per_second", c.tokens_per_second}}}};
  if (!answer.reasoning.empty()) json["reasoning"] = answer.reasoning;
  print_json(json);
}

// stdout carries the answer alone, so that a pipe gets no reasoning. A person sees it on the terminal.
class Printer {
 public:
  explicit Printer(bool streams) : streams_(streams) {}

  void operator()(const AnswerPiece& piece) {
    const bool reasoning = piece.kind == AnswerPiece::Kind::Reasoning;
    if (!streams_ || (reasoning && !shows_reasoning_)) return;
    if (reasoning) {
      tell(Stream::Stderr, "{}{}", std::exchange(dim_, true) ? "" : "\033[2m", piece.text);
      return;
    }
    if (std::exchange(dim_, false)) tell(Stream::Stderr, "\033[0m\n\n");
    fmt::print("{}", piece.text);
    flush_stdout();
  }
  void finish() {
    if (dim_) tell(Stream::Stderr, "\033[0m\n");
  }

 private:
  bool streams_, shows_reasoning_ = isatty(STDERR_FILENO) != 0, dim_ = false;
};

void check(const RunOptions& o) {
  const AnswerOptions& a = o.answer;
  if (o.chat && o.raw) fail(ErrorKind::Usage, "--chat and --raw exclude each other");
  if (o.prompt.has_value() + !o.file.empty() + o.tokens.has_value() > 1)
    fail(ErrorKind::Usage, "give one of PROMPT, --file and --tokens");
  const char* needs_chat = o.chat                     ? "--chat"
                           : !a.system.empty()        ? "--system"
                           : !a.template_file.empty() ? "--template"
                           : !a.thinking.empty()      ? "--thinking"
                                                      : nullptr;
  if (needs_chat == nullptr || (!o.raw && !o.tokens)) return;
  if (o.raw) fail(ErrorKind::Usage, "--raw: there is no place for {}", needs_chat);
  fail(ErrorKind::Usage, "--tokens are taken as they are: there is no place for {}", needs_chat);
}

bool is_chat(const RunOptions& o, const TextModel& text) {
  if (o.chat && !text.chat) fail(ErrorKind::Usage, "--chat: this model has no chat template");
  if (!o.answer.system.empty() && !text.chat) fail(ErrorKind::Usage, "--system: this model has no chat template");
  return !o.raw && !o.tokens && text.chat.has_value();
}

// Adds the prompt to the session, which may be new.
Prompt next_prompt(const RunOptions& o, const std::string& said, const TextModel& text, const Asker& asker,
                   SessionFile* session) {
  if (is_chat(o, text)) {
    auto messages = session != nullptr ? session->messages : nlohmann::ordered_json::array();
    if (messages.empty() && !o.answer.system.empty())
      messages.push_back({{"role", "system"}, {"content", o.answer.system}});
    messages.push_back({{"role", "user"}, {"content", said}});
    if (session != nullptr) session->messages = messages;
    return asker.chat(messages);
  }
  Prompt prompt;
  if (session != nullptr) prompt.tokens = session->tokens;
  const auto added = o.tokens ? parse_token_list(*o.tokens, asker.vocab())
                              : text.tokenizer->encode(said, {.add_special = prompt.tokens.empty()});
  prompt.tokens.insert(prompt.tokens.end(), added.begin(), added.end());
  return prompt;
}

void keep(SessionFile& session, const Prompt& prompt, const Answer& answer, const TextModel& text, Engine& engine,
          const Runner& runner) {
  if (!session.messages.empty()) {
    session.messages.push_back({{"role", "assistant"}, {"content", answer.content}});
    if (!answer.reasoning.empty()) session.messages.back()["reasoning_content"] = answer.reasoning;
  }
  session.tokens = prompt.tokens;
  session.tokens.insert(session.tokens.end(), answer.completion.tokens.begin(), answer.completion.tokens.end());
  // A text goes on where it ended. In a chat the template writes the end of the answer.
  const auto& ends = text.end_tokens;
  if (std::find(ends.begin(), ends.end(), session.tokens.back()) != ends.end()) session.tokens.pop_back();
  session.save(engine, runner);
}

void run(const RunOptions& o) {
  check(o);
  const std::string said = o.tokens ? "" : prompt_text(o.prompt, o.file);
  throw_if_interrupted();
  answer_form(o.answer);  // reports errors before the model is loaded
  const auto start = std::chrono::steady_clock::now();
  auto source = open_model(o.model);
  TextModel text;
  if (!o.tokens || has_tokenizer(*source)) text = load_text_model(*source, o.answer);
  const bool chat = is_chat(o, text);
  LoadOptions load = load_options(o.model);
  const DraftSource drafts = open_drafts(o.draft, o.model, source, load);
  auto runner = load_runner(std::move(source), load);
  const auto drafter = make_drafter(drafts, *runner, text);
  const double load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();

  EngineOptions engine_options;
  if (drafter) engine_options.draft_with(*drafter);
  Engine engine(*runner, engine_options);
  Asker asker(engine, text, static_cast<int32_t>(runner->model().config().vocab), o.answer);
  std::optional<SessionFile> session;
  if (!o.session.empty()) session.emplace(o.session, *runner, chat).restore(engine);
  const Prompt prompt = next_prompt(o, said, text, asker, session ? &*session : nullptr);
  const SamplingParams sampling = sampling_params(o.sampling, text.sampling);
  tell_settings(*runner, sampling, text.sampling_from_model);
  log().info("sampling: {} ({})", describe(sampling),
             text.sampling_from_model ? "from the model" : "millrace's defaults");

  const bool stream = !o.model.json && text.tokenizer != nullptr;
  Printer printer(stream);
  const Answer answer = asker.ask(prompt, o.sampling, sampling, printer);
  const Completion& c = answer.completion;
  printer.finish();
  if (session) keep(*session, prompt, answer, text, engine, *runner);
  if (o.model.json) return print_result(answer, load_ms);
  if (!stream) fmt::print("{}", fmt::join(c.tokens, ","));
  fmt::print("\n");
  log().info(
      "{} prompt tokens, first token after {:.0f} ms, then {:.1f} tokens/s; {} of {} draft tokens accepted; loaded in "
      "{:.0f} ms",
      c.prompt_tokens, c.ttft_ms, c.tokens_per_second, c.accepted_drafts, c.accepted_drafts + c.rejected_drafts,
      load_ms);
}

// An interrupted answer is printed as far as it got; then the process ends as interrupted programs do.
void run_or_end(const RunOptions& o) {
  try {
    run(o);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Cancelled) throw;
  }
  if (!interrupted()) return;
  flush_stdout();
  end_by_interrupt();
}

}  // namespace

void add_run(CLI::App& app) {
  auto* verb = app.add_subcommand("run", "Answer one prompt, streamed");
  auto o = std::make_shared<RunOptions>();
  auto* prompt = verb->add_option("PROMPT", o->words,
                                  "the prompt; text from a pipe is put behind it; - or none: stdin is the prompt");
  add_model_options(*verb, o->model);
  verb->add_option("-f,--file", o->file, "read the prompt from a file");
  add_draft_options(*verb, o->draft);
  add_answer_options(*verb, o->answer);
  auto* tokens = verb->add_option("--tokens", o->ids, "token ids 1,2,3 instead of a prompt");
  verb->add_flag("--chat", o->chat, "put the prompt into the model's chat template (the default if it has one)");
  verb->add_flag("--raw", o->raw, "continue the prompt as it is");
  verb->add_option("--session", o->session, "keep the conversation in this file and go on with it the next time");
  add_sampling_options(*verb, o->sampling);
  verb->callback([o, prompt, tokens] {
    if (prompt->count() > 0) o->prompt = o->words;  // may be empty
    if (tokens->count() > 0) o->tokens = o->ids;
    run_or_end(*o);
  });
}

}  // namespace millrace
