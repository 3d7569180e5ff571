#include "cli/session_file.h"

#include <filesystem>

#include "base/error.h"
#include "base/json_text.h"
#include "base/write_file.h"
#include "cli/read_text.h"
#include "engine/fingerprint.h"

namespace millrace {
namespace {

constexpr int kVersion = 1;

std::string model_mark(const Runner& runner) { return fmt::format("{:016x}", fingerprint(runner.source())); }

// Pages fit only a cache of the same number format and page size.
std::string layout_of(const Runner& runner) {
  const LoadOptions& o = runner.options();
  return fmt::format("{} {}{}", o.kv_type ? name(*o.kv_type) : "", o.block_size, o.exact ? " exact" : "");
}

bool is_message(const nlohmann::ordered_json& m) {
  return m.is_object() && m.contains("role") && m["role"].is_string() && m.contains("content") &&
         m["content"].is_string();
}

}  // namespace

SessionFile::SessionFile(std::string path, const Runner& runner, bool chat)
    : path_(std::move(path)), chat_(chat), layout_(layout_of(runner)) {
  const std::filesystem::path folder = std::filesystem::absolute(path_).parent_path();
  if (std::error_code unknown; !std::filesystem::is_directory(folder, unknown))
    fail(ErrorKind::NotFound, "--session {}: there is no folder {}", path_, folder.string());
  require_writable(path_);
  std::error_code unknown;
  if (std::filesystem::exists(path_, unknown)) read(read_file_or_stdin(path_), runner);
}

void SessionFile::read(const std::string& content, const Runner& runner) {
  const size_t line = content.find('\n');
  const auto json = read_ordered_json(content.substr(0, line));
  const auto text = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : std::string();
  };
  if (!json.is_object() || !json.contains("millrace_session") || json["millrace_session"] != kVersion ||
      line == std::string::npos)
    fail(ErrorKind::BadFile, "--session {}: is not a session of this version of millrace", path_);
  if (text("model") != model_mark(runner)) fail(ErrorKind::Usage, "--session {}: belongs to another model", path_);
  if (text("kind") != (chat_ ? "chat" : "text"))
    fail(ErrorKind::Usage, "--session {}: was made {} --raw", path_, chat_ ? "with" : "without");
  const int64_t vocab = runner.model().config().vocab;
  const auto refuse = [&] { fail(ErrorKind::BadFile, "--session {}: is damaged", path_); };
  if (!json.contains("messages") || !json["messages"].is_array() || !json.contains("tokens") ||
      !json["tokens"].is_array() || !json.contains("saved_tokens") || !json["saved_tokens"].is_number_integer())
    refuse();
  for (const auto& message : json["messages"]) {
    if (!is_message(message)) refuse();
  }
  for (const auto& token : json["tokens"]) {
    if (!token.is_number_integer() || token < 0 || token >= vocab) refuse();
    tokens.push_back(token);
  }
  const int64_t saved = json["saved_tokens"];
  if (saved < 0 || saved > static_cast<int64_t>(tokens.size())) refuse();
  messages = json["messages"];
  if (text("layout") != layout_) return;
  saved_tokens_ = static_cast<int32_t>(saved);
  pages_ = content.substr(line + 1);
}

void SessionFile::restore(Engine& engine) const {
  const auto known = std::span(tokens).first(static_cast<size_t>(saved_tokens_));
  engine.restore_prefix(known, std::as_bytes(std::span(pages_)));
}

void SessionFile::save(Engine& engine, const Runner& runner) const {
  const SavedPrefix saved = engine.save_prefix(tokens);
  const nlohmann::ordered_json json{{"millrace_session", kVersion},
                                    {"model", model_mark(runner)},
                                    {"kind", chat_ ? "chat" : "text"},
                                    {"layout", layout_},
                                    {"messages", messages},
                                    {"tokens", tokens},
                                    {"saved_tokens", saved.tokens}};
  std::string content = json_text(json) + "\n";
  content.append(reinterpret_cast<const char*>(saved.pages.data()), saved.pages.size());
  write_file(path_, content);
}

}  // namespace millrace
