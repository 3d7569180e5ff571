// millrace chat: a conversation with history.
#include <fmt/core.h>

#include "base/ascii.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/tell.h"
#include "cli/chat/command.h"
#include "cli/chat/conversation.h"
#include "cli/chat/message_reader.h"
#include "cli/draft_options.h"
#include "cli/flush_stdout.h"
#include "cli/line_editor.h"
#include "cli/model_options.h"

namespace millrace {
namespace {

struct ChatOptions {
  ModelOptions model;
  DraftOptions draft;
  SamplingOptions sampling;
  AnswerOptions answer;
};

void show_system(const Conversation& conversation) {
  const std::string system = conversation.system();
  fmt::print("{}\n", system.empty() ? "there is no system message" : system);
}

void set(Conversation& conversation, const std::string& argument) {
  const size_t space = std::min(argument.find(' '), argument.size());
  const std::string value(ascii_trim(std::string_view(argument).substr(space)));
  if (argument.empty()) {
    fmt::print("{}\n", describe(conversation.sampling()));
  } else if (value.empty()) {
    fail(ErrorKind::Usage, "/set {}: needs a value", argument);
  } else {
    conversation.set(argument.substr(0, space), value);
    fmt::print("set\n");
  }
}

const std::string& file_of(const ChatLine& line, const char* command) {
  if (line.text.empty()) fail(ErrorKind::Usage, "{} needs the name of a file", command);
  return line.text;
}

// False: the conversation is over.
bool obey(Conversation& conversation, const ChatLine& line, ViewOptions& view) {
  switch (line.command) {
    case ChatCommand::Message:
      if (!ascii_trim(line.text).empty()) conversation.say(line.text, AnswerView(view));
      break;
    case ChatCommand::Unknown:
      tell(Stream::Stderr, "{}: unknown command; /help lists them, and // begins a message with a slash\n", line.text);
      break;
    case ChatCommand::Help:
      fmt::print("{}", chat_help());
      break;
    case ChatCommand::System:
      if (!line.text.empty()) conversation.set_system(line.text == "\"\"" ? "" : line.text);
      show_system(conversation);
      break;
    case ChatCommand::Set:
      set(conversation, line.text);
      break;
    case ChatCommand::Undo:
      conversation.undo();
      fmt::print("undone\n");
      break;
    case ChatCommand::Retry:
      conversation.retry(AnswerView(view));
      break;
    case ChatCommand::Reset:
      conversation.reset();
      fmt::print("forgotten\n");
      break;
    case ChatCommand::Save:
      conversation.save(file_of(line, "/save"));
      fmt::print("saved to {}\n", line.text);
      break;
    case ChatCommand::Load:
      conversation.load(file_of(line, "/load"));
      fmt::print("{} messages\n", conversation.messages());
      break;
    case ChatCommand::Stats:
      fmt::print("{}", conversation.stats());
      break;
    case ChatCommand::Think:
      fmt::print("{}\n", conversation.last_reasoning().empty() ? "no reasoning" : conversation.last_reasoning());
      break;
    case ChatCommand::Fold:
      view.fold = !view.fold;
      fmt::print("reasoning is {}\n", view.fold ? "folded" : "shown");
      break;
    case ChatCommand::Quit:
      return false;
  }
  flush_stdout();
  return true;
}

void converse(Conversation& conversation, LineEditor& editor) {
  ViewOptions view{.terminal = editor.interactive(), .color = editor.interactive() && environment().color};
  const auto read_line = [&](bool in_block) -> std::optional<std::string> {
    return interrupted() ? std::nullopt : editor.read(in_block ? "..." : ">");
  };
  while (const auto typed = read_message(read_line)) {
    try {
      const ChatLine line = typed->block ? ChatLine{ChatCommand::Message, typed->text} : read_chat_line(typed->text);
      if (!obey(conversation, line, view)) break;
    } catch (const Error& e) {
      if (!editor.interactive()) throw;  // a script must see the failure; a person can go on
      tell(Stream::Stderr, "millrace: {}\n", e.what());
    }
  }
}

void run(const ChatOptions& o) {
  answer_form(o.answer);  // reports errors before the model is loaded
  auto source = open_model(o.model);
  const TextModel text = load_text_model(*source, o.answer);
  if (!text.chat) fail(ErrorKind::Usage, "this model has no chat template; 'millrace run --raw' continues a text");
  LoadOptions load = load_options(o.model);
  const DraftSource drafts = open_drafts(o.draft, o.model, source, load);
  auto runner = load_runner(std::move(source), load);
  const auto drafter = make_drafter(drafts, *runner, text);
  EngineOptions engine_options;
  if (drafter) engine_options.draft_with(*drafter);
  Engine engine(*runner, engine_options);
  Asker asker(engine, text, static_cast<int32_t>(runner->model().config().vocab), o.answer);
  Conversation conversation(asker, text, runner->options().context, o.sampling);
  conversation.set_system(o.answer.system);
  LineEditor editor(environment().cache / "chat_history");
  if (editor.interactive()) {
    fmt::print("{}. /help for commands.\n", runner->source().origin());
    tell_settings(*runner, conversation.sampling(), text.sampling_from_model);
  }
  converse(conversation, editor);
}

}  // namespace

void add_chat(CLI::App& app) {
  auto* verb = app.add_subcommand("chat", "Hold a conversation");
  auto o = std::make_shared<ChatOptions>();
  add_model_options(*verb, o->model, ModelArgument::Flag, JsonFlag::No);
  add_draft_options(*verb, o->draft);
  add_answer_options(*verb, o->answer);
  add_sampling_options(*verb, o->sampling);
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
