// Selects a model's chat template and renders conversations into prompts. Templates are Jinja with the settings of
// Hugging Face transformers; the interpreter is in jinja/.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

// A rendered conversation. Special tokens inside of the ranges came with the conversation and are plain text.
struct RenderedChat {
  std::string text;
  std::vector<std::pair<size_t, size_t>> content;  // [begin, end) in bytes, sorted
};

class ChatTemplate {
 public:
  // Throws Error(BadFile) with the line if the source is not a valid template. Error messages begin with `name`.
  explicit ChatTemplate(std::string_view source, std::string name = "chat template");
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Renders the prompt. `context` is an object with all variables of the template: messages, tools, documents,
  // add_generation_prompt, bos_token, eos_token and those of the user. `now` is the result of strftime_now(). Throws
  // Error(BadFile) if the template fails, Error(Unsupported) if it calls raise_exception(). Thread-safe.
  std::string render(const nlohmann::ordered_json& context,
                     std::chrono::system_clock::time_point now = std::chrono::system_clock::now()) const;
  // The same, and which bytes come from the context. `own` has the variables of the context that are the template's own
  // markup: bos_token, eos_token and the like.
  RenderedChat render_chat(const nlohmann::ordered_json& context, const nlohmann::ordered_json& own,
                           std::chrono::system_clock::time_point now = std::chrono::system_clock::now()) const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
  std::string name_;
};

// The template sources of a model by name. Most models have one, named "default".
class ChatTemplateSources {
 public:
  // A later source replaces an earlier one of the same name. Add chat_template.jinja after tokenizer_config.json.
  void add(std::string name, std::string source);
  // Adds "chat_template" of a tokenizer_config.json, if present: a string or a list of {name, template}.
  void add_from_tokenizer_config(const nlohmann::ordered_json& tokenizer_config);
  // Adds a metadata entry of a GGUF file: tokenizer.chat_template or tokenizer.chat_template.NAME. Ignores other keys.
  void add_from_gguf(std::string_view key, std::string_view value);

  bool empty() const { return sources_.empty(); }
  std::vector<std::string> names() const;
  const std::string& text(std::string_view name) const { return *find(name); }  // one of names()
  // Chooses like Hugging Face: "tool_use" if it exists and the request has tools, else "default". Throws
  // Error(Unsupported) if the model has no such template.
  const std::string& choose(bool with_tools) const;

 private:
  const std::string* find(std::string_view name) const;
  std::vector<std::pair<std::string, std::string>> sources_;
};

// bos_token, eos_token and the other special tokens as template variables. Each is a string in tokenizer_config.json,
// or an object with the string as "content".
nlohmann::ordered_json special_token_variables(const nlohmann::ordered_json& tokenizer_config);

}  // namespace millrace
