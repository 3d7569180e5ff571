// millrace chat: a conversation with history.
#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "cli/answer_printer.h"
#include "cli/line_editor.h"
#include "cli/model_options.h"
#include "cli/sampling_options.h"
#include "engine/completion.h"
#include "engine/text_model.h"

namespace millrace {
namespace {

struct ChatOptions {
  ModelOptions model;
  SamplingOptions sampling;
  std::string system;
};

constexpr const char* kHelp =
    "/help         this list\n"
    "/reset        forget the conversation\n"
    "/save FILE    write the conversation as JSON\n"
    "/quit         leave (so does Ctrl-D); Ctrl-C stops an answer\n";

class Conversation {
 public:
  Conversation(Engine& engine, const TextModel& text, const ChatOptions& options)
      : engine_(engine), text_(text), options_(options), sampling_(sampling_params(options.sampling, text.sampling)) {
    reset();
  }

  void reset() {
    messages_ = nlohmann::ordered_json::array();
    if (!options_.system.empty()) messages_.push_back({{"role", "system"}, {"content", options_.system}});
  }

  void save(const std::string& path) const {
    std::ofstream out(path);
    out << json_text(messages_, 2) << '\n';
    out.close();
    if (!out) fail_errno(path);
    fmt::print("saved to {}\n", path);
  }

  void answer(const std::string& said) {
    messages_.push_back({{"role", "user"}, {"content", said}});
    try {
      const std::string rendered = render_chat(text_, {{"messages", messages_}, {"add_generation_prompt", true}});
      CompletionOptions options;
      options.prompt = text_.tokenizer->encode(rendered, {.add_special = false, .parse_special = true});
      options.sampling = sampling_;
      options.max_tokens = options_.sampling.max_tokens;
      options.stop = options_.sampling.stop;
      if (!options_.sampling.ignore_eos) options.end_tokens = text_.end_tokens;
      AnswerPrinter answer(text_, rendered);
      options.visible = answer.visible();
      const Completion completion =
          complete(engine_, text_.tokenizer.get(), options, [&](std::string_view piece) { answer.push(piece); });
      answer.finish();
      clear_interrupt();
      fmt::print("{}\n", completion.interrupted ? " [stopped]" : "");
      messages_.push_back({{"role", "assistant"}, {"content", answer.content()}});
    } catch (const Error&) {
      messages_.erase(messages_.size() - 1);  // the message got no answer: remove it from the history
      throw;
    }
  }

  const SamplingParams& sampling() const { return sampling_; }

 private:
  Engine& engine_;
  const TextModel& text_;
  const ChatOptions& options_;
  SamplingParams sampling_;
  nlohmann::ordered_json messages_;
};

// False: the conversation is over.
bool obey(Conversation& conversation, const std::string& typed) {
  const std::string line(typed.starts_with("/") ? ascii_trim(typed) : typed);
  if (line == "/quit" || line == "/exit") return false;
  if (line == "/help") {
    fmt::print("{}", kHelp);
  } else if (line == "/reset") {
    conversation.reset();
    fmt::print("forgotten\n");
  } else if (line == "/save" || line.starts_with("/save ")) {
    const std::string file(ascii_trim(line.substr(5)));
    if (file.empty()) fail(ErrorKind::Usage, "/save needs the name of a file");
    conversation.save(file);
  } else if (line.starts_with("/")) {
    fmt::print(stderr, "unknown command; /help lists them\n");
  } else if (!line.empty()) {
    conversation.answer(line);
  }
  return true;
}

void run(const ChatOptions& o) {
  auto source = open_model(o.model);
  const TextModel text = load_text_model(*source);
  if (!text.chat) fail(ErrorKind::Usage, "this model has no chat template; 'millrace run --raw' continues a text");
  auto runner = load_runner(std::move(source), load_options(o.model));
  Engine engine(*runner);
  Conversation conversation(engine, text, o);
  LineEditor editor(environment().cache / "chat_history");
  if (editor.interactive()) {
    fmt::print("{}. /help for commands.\n", runner->source().origin());
    tell_settings(*runner, conversation.sampling(), text.sampling_from_model);
  }
  while (const auto line = interrupted() ? std::nullopt : editor.read(">")) {
    try {
      if (!obey(conversation, *line)) break;
    } catch (const Error& e) {
      if (!editor.interactive()) throw;  // a script must see the failure; a person can go on
      fmt::print(stderr, "millrace: {}\n", e.what());
    }
  }
}

}  // namespace

void add_chat(CLI::App& app) {
  auto* verb = app.add_subcommand("chat", "Hold a conversation");
  auto o = std::make_shared<ChatOptions>();
  add_model_options(*verb, o->model, ModelArgument::Flag, JsonFlag::No);
  verb->add_option("--system", o->system, "a system message at the start");
  add_sampling_options(*verb, o->sampling);
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
