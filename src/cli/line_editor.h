// Lines from a person (edited, with history and colour) or from a pipe.
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
  // Nothing at the end of input. On a terminal Ctrl-C drops the line being typed.
  std::optional<std::string> read(const std::string& prompt);

 private:
  struct Edit;
  std::filesystem::path history_;
  bool interactive_;
  std::unique_ptr<Edit> edit_;
};

}  // namespace millrace
