#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cwchar>
#include <iostream>
#include <string_view>

#include "base/environment.h"
#include "base/interrupt.h"
#include "base/tell.h"
#include "cli/read_text.h"

namespace millrace {
namespace {

// libedit decodes input by the locale. Without one it drops every character that is not ASCII; terminals send UTF-8
// even where the locale is C. Only LC_CTYPE is set: numbers keep their decimal point.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

// The next character, 0 at the end of the input, -1 for an interrupt.
int read_character(EditLine*, wchar_t* to) {
  std::mbstate_t state{};
  while (true) {
    pollfd sources[] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_descriptor(), POLLIN, 0}};
    if (::poll(sources, 2, -1) < 0 && errno != EINTR) return -1;
    if (interrupted()) {
      errno = EINTR;
      return -1;
    }
    if (sources[0].revents == 0) continue;
    char byte = 0;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return static_cast<int>(count);
    const size_t used = std::mbrtowc(to, &byte, 1, &state);
    if (used <= 1) return 1;
    if (used == static_cast<size_t>(-1)) state = {};  // no UTF-8: dropped
  }
}

// Terminals put pasted text between these, if asked to.
constexpr const char* kPasteOn = "\033[?2004h";
constexpr const char* kPasteOff = "\033[?2004l";
constexpr std::wstring_view kPasteEnd = L"\033[201~";

// Inserts the pasted text with its line ends, which do not end the message.
unsigned char insert_paste(EditLine* line, int) {
  std::wstring text;
  wchar_t c = 0;
  while (!text.ends_with(kPasteEnd)) {
    if (el_wgetc(line, &c) != 1) return CC_EOF;
    text += c == L'\r' ? L'\n' : c;
  }
  text.resize(text.size() - kPasteEnd.size());
  while (!text.empty() && text.back() == L'\n') text.pop_back();
  std::erase_if(text, [](wchar_t t) { return t != L'\n' && t != L'\t' && (t < L' ' || t == 0x7f); });
  return el_winsertstr(line, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

}  // namespace

struct LineEditor::Edit {
  Edit() : marks_pastes(environment_variable("TERM", "dumb") != "dumb") {
    use_utf8();
    line = el_init("millrace", stdin, stdout, stderr);
    history = history_init();
    HistEvent event;
    ::history(history, &event, H_SETSIZE, 1000);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_SIGNAL, 0);
    el_set(line, EL_GETCFN, read_character);
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
    el_set(line, EL_ADDFN, "millrace-paste", "insert pasted text", insert_paste);
    el_set(line, EL_BIND, "\033[200~", "millrace-paste", nullptr);
    if (marks_pastes) tell_text(Stream::Stdout, kPasteOn);
  }
  ~Edit() {
    if (marks_pastes) tell_text(Stream::Stdout, kPasteOff);
    history_end(history);
    el_end(line);
  }
  const bool marks_pastes;
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
  if (!edit_) return read_line_of_stdin();
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
  std::string line(typed, static_cast<size_t>(length));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  HistEvent event;
  if (!line.empty()) ::history(edit_->history, &event, H_ENTER, line.c_str());
  return line;
}

}  // namespace millrace
