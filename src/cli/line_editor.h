// Lines typed by a user (editing, history, colour, pasted text with several lines) or read from a pipe.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace millrace {

class LineEditor {
 public:
  explicit LineEditor(std::filesystem::path history);
  ~LineEditor();

  bool interactive() const { return interactive_; }
  // Nullopt at the end of input. On a terminal Ctrl-C discards the current line.
  std::optional<std::string> read(const std::string& prompt);

 private:
  struct Edit;
  std::filesystem::path history_;
  bool interactive_;
  std::unique_ptr<Edit> edit_;
};

}  // namespace millrace
