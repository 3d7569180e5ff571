// millrace template: renders a conversation with a chat template.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/read_text.h"
#include "engine/text_model.h"

namespace millrace {
namespace {

struct TemplateOptions {
  ModelOptions model;
  std::string file, input;
};

std::string render(const TemplateOptions& o) {
  auto context = read_ordered_json(read_file_or_stdin(o.input));
  if (!context.is_object()) fail(ErrorKind::BadFile, "{}: not a JSON object with messages and the like", o.input);
  if (!o.file.empty()) return ChatTemplate(read_file_or_stdin(o.file)).render(context);
  const auto source = open_model(o.model);
  TextModel text;
  text.tokenizer = load_tokenizer(*source);
  text.chat = load_chat_templates(*source);
  if (!text.chat) fail(ErrorKind::NotFound, "{}: has no chat template", source->origin());
  return render_chat(text, std::move(context)).text;
}

}  // namespace

void add_template(CLI::App& app) {
  auto* verb = app.add_subcommand("template", "Render a chat template");
  auto o = std::make_shared<TemplateOptions>();
  add_file_options(*verb, o->model);
  verb->add_option("--file", o->file, "a Jinja template, instead of the model's own");
  verb->add_option("--input", o->input,
                   "JSON with messages, tools, add_generation_prompt and any other variable; - for stdin")
      ->required();
  verb->callback([o] {
    const std::string text = render(*o);
    if (o->model.json) {
      print_json({{"text", text}});
    } else {
      fmt::print("{}", text);
    }
  });
}

}  // namespace millrace
