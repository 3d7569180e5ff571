#include "text/chat_template.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parse/parser.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/json_value.h"

namespace millrace {
namespace {

[[noreturn]] void rethrow(const std::string& name, const jinja::TemplateError& error, int line) {
  if (error.origin() == jinja::TemplateError::Origin::Raised) {
    fail(ErrorKind::Unsupported, "the {} refuses this conversation: {}", name, error.what());
  }
  fail(ErrorKind::BadFile, "{} line {}: {}", name, error.line() > 0 ? error.line() : line, error.what());
}

}  // namespace

struct ChatTemplate::Parsed {
  jinja::Template tree;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string name) : name_(std::move(name)) {
  try {
    parsed_ = std::make_unique<const Parsed>(Parsed{jinja::parse_template(source)});
  } catch (const jinja::TemplateError& error) {
    rethrow(name_, error, 1);
  }
}

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(const nlohmann::ordered_json& context,
                                 std::chrono::system_clock::time_point now) const {
  return render_chat(context, nlohmann::ordered_json::object(), now).text;
}

RenderedChat ChatTemplate::render_chat(const nlohmann::ordered_json& context, const nlohmann::ordered_json& own,
                                       std::chrono::system_clock::time_point now) const {
  if (!context.is_object()) fail(ErrorKind::BadFile, "the input of a {} must be a JSON object of variables", name_);
  const jinja::Budget budget{jinja::RenderLimits()};
  std::unique_ptr<jinja::Interpreter> interpreter;
  try {
    const jinja::Value variables = jinja::value_from_json(context, own);
    interpreter = std::make_unique<jinja::Interpreter>(parsed_->tree, variables.as_dict(), now);
    const jinja::Value rendered = interpreter->run();
    return {rendered.str(), rendered.text().content.value_or(jinja::ContentRanges())};
  } catch (const jinja::TemplateError& error) {
    if (!interpreter) fail(ErrorKind::BadFile, "the input of the {}: {}", name_, error.what());
    rethrow(name_, error, interpreter->line());
  }
}

void ChatTemplateSources::add(std::string name, std::string source) {
  for (auto& [known, old] : sources_) {
    if (known == name) {
      old = std::move(source);
      return;
    }
  }
  sources_.emplace_back(std::move(name), std::move(source));
}

void ChatTemplateSources::add_from_tokenizer_config(const nlohmann::ordered_json& tokenizer_config) {
  if (!tokenizer_config.is_object()) return;
  const auto found = tokenizer_config.find("chat_template");
  if (found == tokenizer_config.end() || found->is_null()) return;
  if (found->is_string()) return add("default", found->get<std::string>());
  if (!found->is_array()) {
    fail(ErrorKind::BadFile, "tokenizer_config.json: chat_template must be a string or a list of named templates");
  }
  for (const auto& entry : *found) {
    const bool complete = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                          entry.contains("template") && entry["template"].is_string();
    if (!complete) {
      fail(ErrorKind::BadFile, "tokenizer_config.json: each template of chat_template needs a name and a template");
    }
    add(entry["name"].get<std::string>(), entry["template"].get<std::string>());
  }
}

void ChatTemplateSources::add_from_gguf(std::string_view key, std::string_view value) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (!key.starts_with(kKey)) return;
  key.remove_prefix(kKey.size());
  if (key.empty()) return add("default", std::string(value));
  if (key.size() > 1 && key[0] == '.') add(std::string(key.substr(1)), std::string(value));
}

std::vector<std::string> ChatTemplateSources::names() const {
  std::vector<std::string> names;
  for (const auto& [name, source] : sources_) names.push_back(name);
  return names;
}

const std::string* ChatTemplateSources::find(std::string_view name) const {
  const auto found =
      std::find_if(sources_.begin(), sources_.end(), [&](const auto& entry) { return entry.first == name; });
  return found == sources_.end() ? nullptr : &found->second;
}

const std::string& ChatTemplateSources::choose(bool with_tools) const {
  if (const std::string* source = with_tools ? find("tool_use") : nullptr) return *source;
  if (const std::string* source = find("default")) return *source;
  if (sources_.empty()) fail(ErrorKind::Unsupported, "the model has no chat template");
  fail(ErrorKind::Unsupported, "the model has no default chat template, only these: {}", fmt::join(names(), ", "));
}

nlohmann::ordered_json special_token_variables(const nlohmann::ordered_json& tokenizer_config) {
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  if (!tokenizer_config.is_object()) return variables;
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto found = tokenizer_config.find(name);
    if (found == tokenizer_config.end()) continue;
    if (found->is_string()) variables[name] = *found;
    if (found->is_object() && found->contains("content")) variables[name] = (*found)["content"];
  }
  return variables;
}

}  // namespace millrace
