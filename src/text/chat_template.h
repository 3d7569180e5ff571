// Chat templates: which one a model ships, and the prompt it makes of a conversation. They are Jinja, run as Hugging
// Face runs them; the interpreter is in jinja/.
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

class ChatTemplate {
 public:
  // Throws Error(BadFile), with the line, when the source is no template. `name` stands in messages.
  explicit ChatTemplate(std::string_view source, std::string name = "chat template");
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // The text of the prompt. The context is an object of every variable the template may use: messages, tools,
  // documents, add_generation_prompt, bos_token, eos_token, and whatever else the user sets. `now` is for templates
  // that print the date. Throws Error(BadFile) when the template fails, Error(Usage) when it refuses the conversation
  // by raise_exception. May be called from several threads at once.
  std::string render(const nlohmann::ordered_json& context,
                     std::chrono::system_clock::time_point now = std::chrono::system_clock::now()) const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
  std::string name_;
};

// The sources of a model's templates, by name. Most models have one, called "default".
class ChatTemplateSources {
 public:
  // A later source of the same name wins: chat_template.jinja is added after tokenizer_config.json.
  void add(std::string name, std::string source);
  // The "chat_template" of a tokenizer_config.json: a string, or a list of {name, template}. None is fine.
  void add_from_tokenizer_config(const nlohmann::ordered_json& tokenizer_config);
  // One metadata entry of a GGUF file: tokenizer.chat_template, or tokenizer.chat_template.NAME. Others are ignored.
  void add_from_gguf(std::string_view key, std::string_view value);

  bool empty() const { return sources_.empty(); }
  std::vector<std::string> names() const;
  // As Hugging Face chooses: "tool_use" when there are tools and it exists, else "default". Throws Error(Unsupported)
  // when the model has no such template.
  const std::string& choose(bool with_tools) const;

 private:
  const std::string* find(std::string_view name) const;
  std::vector<std::pair<std::string, std::string>> sources_;
};

// bos_token, eos_token and their like, as variables for a template. In tokenizer_config.json each is a string, or an
// object whose "content" is the string.
nlohmann::ordered_json special_token_variables(const nlohmann::ordered_json& tokenizer_config);

}  // namespace millrace
