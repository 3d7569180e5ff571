// The file of --session: a conversation and the cached state of its tokens, so that the next run computes only what is
// new. The first line is JSON; the pages of the state follow as bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace millrace {

class SessionFile {
 public:
  // Reads the file, or begins a new session where none exists. Throws BadFile for anything else than a session of this
  // model, and checks that the file can be written.
  SessionFile(std::string path, const Runner& runner, bool chat);

  bool is_new() const { return tokens.empty(); }
  void restore(Engine& engine) const;  // a state of another KV format is left out, and computed again
  void save(Engine& engine, const Runner& runner) const;

  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // of a chat
  std::vector<int32_t> tokens;                                        // of the prompt and the answer

 private:
  void read(const std::string& content, const Runner& runner);

  std::string path_;
  bool chat_;
  std::string layout_;
  int32_t saved_tokens_ = 0;
  std::string pages_;
};

}  // namespace millrace
