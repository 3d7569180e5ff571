#include "cli/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <iostream>

#include "base/environment.h"
#include "base/interrupt.h"

namespace millrace {

struct LineEditor::Edit {
  Edit() {
    line = el_init("millrace", stdin, stdout, stderr);
    history = history_init();
    HistEvent event;
    ::history(history, &event, H_SETSIZE, 1000);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_SIGNAL, 0);
    el_set(line, EL_HIST, ::history, history);
    el_set(line, EL_CLIENTDATA, this);
    el_set(
        line, EL_PROMPT_ESC,
        +[](EditLine* el) -> char* {  // the plus makes it a function pointer, as a variadic function needs
          Edit* self = nullptr;
          el_get(el, EL_CLIENTDATA, &self);
          return self->prompt.data();
        },
        '\1');
  }
  ~Edit() {
    history_end(history);
    el_end(line);
  }
  EditLine* line;
  History* history;
  std::string prompt;
};

LineEditor::LineEditor(std::filesystem::path history)
    : history_(std::move(history)), interactive_(isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0) {
  if (!interactive_) return;
  edit_ = std::make_unique<Edit>();
  HistEvent event;
  ::history(edit_->history, &event, H_LOAD, history_.c_str());
}

LineEditor::~LineEditor() {
  if (!edit_) return;
  std::error_code ignored;
  std::filesystem::create_directories(history_.parent_path(), ignored);
  HistEvent event;
  ::history(edit_->history, &event, H_SAVE, history_.c_str());
}

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  std::string line;
  if (!edit_) {
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  // libedit drops an escape at the very end, so the space follows it.
  edit_->prompt = (environment().color ? "\1\033[1;36m\1" + prompt + "\1\033[0m\1" : prompt) + " ";
  int length = 0;
  const char* typed = el_gets(edit_->line, &length);
  if (typed == nullptr && interrupted()) {
    std::cout << '\n';
    if (!clear_interrupt()) return std::nullopt;
    return "";
  }
  if (typed == nullptr || length <= 0) return std::nullopt;
  line.assign(typed, static_cast<size_t>(length));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  HistEvent event;
  if (!line.empty()) ::history(edit_->history, &event, H_ENTER, line.c_str());
  return line;
}

}  // namespace millrace
