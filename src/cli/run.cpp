// millrace run: one completion, streamed.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/answer_printer.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/read_text.h"
#include "cli/sampling_options.h"
#include "cli/token_list.h"
#include "engine/completion.h"
#include "engine/text_model.h"

namespace millrace {
namespace {

struct RunOptions {
  ModelOptions model;
  SamplingOptions sampling;
  std::string prompt, file, system, tokens;
  bool has_prompt = false, has_tokens = false, chat = false, raw = false;
};

std::string prompt_text(const RunOptions& o) {
  if (!o.file.empty()) return read_file_or_stdin(o.file);
  if (o.prompt == "-") return read_file_or_stdin("-");
  return o.prompt;
}

struct Prompt {
  std::vector<int32_t> tokens;
  std::string rendered;  // by the chat template; empty: not a chat
};

Prompt make_prompt(const RunOptions& o, const TextModel& text) {
  const bool chat = o.chat || (!o.raw && text.chat.has_value());
  const auto* needs_chat = o.chat ? "--chat" : o.system.empty() ? nullptr : "--system";
  if (needs_chat != nullptr && !text.chat) fail(ErrorKind::Usage, "{}: this model has no chat template", needs_chat);
  if (!chat) return {text.tokenizer->encode(prompt_text(o)), ""};
  auto messages = nlohmann::ordered_json::array();
  if (!o.system.empty()) messages.push_back({{"role", "system"}, {"content", o.system}});
  messages.push_back({{"role", "user"}, {"content", prompt_text(o)}});
  std::string rendered = render_chat(text, {{"messages", messages}, {"add_generation_prompt", true}});
  log().debug("prompt: {}", rendered);
  return {text.tokenizer->encode(rendered, {.add_special = false, .parse_special = true}), std::move(rendered)};
}

std::string_view reason(FinishReason finish) {
  if (finish == FinishReason::None) return "interrupted";  // Ctrl-C
  return finish == FinishReason::Length ? "length" : "stop";
}

void print_result(const Completion& c, const AnswerPrinter& answer, double load_ms) {
  nlohmann::json json{
      {"text", answer.content()},
      {"tokens", c.tokens},
      {"finish_reason", reason(c.finish)},
      {"usage", {{"prompt_tokens", c.prompt_tokens}, {"completion_tokens", c.tokens.size()}}},
      {"timings", {{"load_ms", load_ms}, {"ttft_ms", c.ttft_ms}, {"tokens_per_second", c.tokens_per_second}}}};
  if (!answer.reasoning().empty()) json["reasoning"] = answer.reasoning();
  print_json(json);
}

void check(const RunOptions& o) {
  if (o.raw && !o.system.empty()) fail(ErrorKind::Usage, "--raw: there is no place for a --system message");
  if (o.chat && o.raw) fail(ErrorKind::Usage, "--chat and --raw exclude each other");
  if (o.has_prompt + !o.file.empty() + o.has_tokens != 1)
    fail(ErrorKind::Usage, "give one of PROMPT, --file and --tokens");
  if (o.has_tokens && (o.chat || !o.system.empty()))
    fail(ErrorKind::Usage, "--tokens are taken as they are: there is no place for {}", o.chat ? "--chat" : "--system");
}

void run(const RunOptions& o) {
  check(o);
  const auto start = std::chrono::steady_clock::now();
  auto source = open_model(o.model);
  TextModel text;
  if (!o.has_tokens || has_tokenizer(*source)) text = load_text_model(*source);
  auto runner = load_runner(std::move(source), load_options(o.model));
  const double load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();

  CompletionOptions options;
  Prompt prompt;
  if (!o.has_tokens) prompt = make_prompt(o, text);
  options.prompt = o.has_tokens ? parse_token_list(o.tokens, runner->model().config().vocab) : std::move(prompt.tokens);
  options.sampling = sampling_params(o.sampling, text.sampling);
  options.max_tokens = o.sampling.max_tokens;
  options.stop = o.sampling.stop;
  if (!o.sampling.ignore_eos) options.end_tokens = text.end_tokens;
  tell_settings(*runner, options.sampling, text.sampling_from_model);
  log().info("sampling: {} ({})", describe(options.sampling),
             text.sampling_from_model ? "from the model" : "millrace's defaults");

  Engine engine(*runner);
  const bool stream = !o.model.json && text.tokenizer != nullptr;
  AnswerPrinter answer(text, prompt.rendered, /*silent=*/!stream);
  options.visible = answer.visible();
  const Completion completion =
      complete(engine, text.tokenizer.get(), options, [&](std::string_view piece) { answer.push(piece); });
  answer.finish();
  if (o.model.json) return print_result(completion, answer, load_ms);
  if (!stream) fmt::print("{}", fmt::join(completion.tokens, ","));
  fmt::print("\n");
  log().info("{} prompt tokens, first token after {:.0f} ms, then {:.1f} tokens/s; loaded in {:.0f} ms",
             completion.prompt_tokens, completion.ttft_ms, completion.tokens_per_second, load_ms);
}

}  // namespace

void add_run(CLI::App& app) {
  auto* verb = app.add_subcommand("run", "Answer one prompt, streamed");
  auto o = std::make_shared<RunOptions>();
  auto* prompt = verb->add_option("PROMPT", o->prompt, "the prompt; - reads it from stdin");
  add_model_options(*verb, o->model);
  verb->add_option("-f,--file", o->file, "read the prompt from a file");
  verb->add_option("--system", o->system, "a system message before the prompt");
  auto* tokens = verb->add_option("--tokens", o->tokens, "token ids 1,2,3 instead of a prompt");
  verb->add_flag("--chat", o->chat, "put the prompt into the model's chat template (the default if it has one)");
  verb->add_flag("--raw", o->raw, "continue the prompt as it is");
  add_sampling_options(*verb, o->sampling);
  verb->callback([o, prompt, tokens] {
    o->has_prompt = prompt->count() > 0;
    o->has_tokens = tokens->count() > 0;
    run(*o);
  });
}

}  // namespace millrace
