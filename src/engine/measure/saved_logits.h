// Logits of a text in a file, so that other runs, types or machines can be compared with them. A logit takes 16 bits:
// 65536 even steps between the smallest and the largest of its row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "base/mapped_file.h"
#include "engine/measure/scored_rows.h"

namespace millrace {

class LogitsWriter {
 public:
  LogitsWriter(std::filesystem::path path, const ScoredText& text, int64_t vocab);  // throws Io
  ~LogitsWriter();                                                                  // without finish() nothing remains
  LogitsWriter(const LogitsWriter&) = delete;

  void add(std::span<const float> logits);
  void finish();  // throws Io

 private:
  std::filesystem::path path_, part_;
  std::ofstream out_;
  std::vector<uint16_t> steps_;
  bool finished_ = false;
};

class LogitsReader {
 public:
  // Throws BadFile if the file is damaged, and Usage if it holds another text, window or vocabulary.
  LogitsReader(const std::filesystem::path& path, const ScoredText& text, int64_t vocab);

  std::span<const float> next();  // until the next call

 private:
  MappedFile file_;
  size_t at_ = 0;
  std::vector<float> row_;
};

}  // namespace millrace
