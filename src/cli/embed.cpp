// millrace embed: the vectors of texts, made as the model's files say.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "cli/checks.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/read_text.h"
#include "engine/engine.h"
#include "engine/sentence_prompts.h"
#include "engine/text_model.h"
#include "models/pooling_settings.h"
#include "server/embedding.h"

namespace millrace {
namespace {

constexpr size_t kAtOnce = 8;  // texts that share steps

struct EmbedOptions {
  ModelOptions model;
  std::vector<std::string> texts;
  std::string file, prompt;
  int dimensions = 0;
};

std::vector<std::string> read_texts(const EmbedOptions& o) {
  if (!o.texts.empty() && !o.file.empty()) fail(ErrorKind::Usage, "give texts or --file, not both");
  if (!o.texts.empty()) return o.texts;
  if (o.file.empty() && ::isatty(STDIN_FILENO) != 0) fail(ErrorKind::Usage, "no text: give some, or --file");
  const std::string all = read_file_or_stdin(o.file.empty() ? "-" : o.file);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    std::string line = all.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
    begin = end + 1;
  }
  if (lines.empty()) fail(ErrorKind::Usage, "the input has no text");
  return lines;
}

std::string prompt_text(const EmbedOptions& o, const WeightSource& source) {
  const SentencePrompts prompts = read_sentence_prompts(source);
  const std::string& name = o.prompt.empty() ? prompts.usual : o.prompt;
  if (name.empty()) return "";
  if (const auto found = prompts.texts.find(name); found != prompts.texts.end()) return found->second;
  std::string known;
  for (const auto& [other, text] : prompts.texts) known += (known.empty() ? "" : ", ") + other;
  fail(ErrorKind::Usage, "--prompt {}: this model has {}", name, known.empty() ? "no prompts" : known);
}

void check(const EmbedOptions& o, const Runner& plan) {
  const Model& model = plan.model();
  const std::string& origin = plan.source().origin();
  if (model.pools_to_scores())
    fail(ErrorKind::Usage, "{}: scores pairs of texts; 'serve' offers /v1/rerank and /score", origin);
  const int64_t width = model.pools() ? model.pooled_width() : model.config().hidden;
  const bool can_shorten = model.pools() || read_pooling(plan.source()).kind.has_value();
  if (o.dimensions > width || (o.dimensions > 0 && o.dimensions < width && !can_shorten)) {
    fail(ErrorKind::Usage, "--dimensions {}: vectors of this model have {}{}", o.dimensions, width,
         o.dimensions < width ? " and cannot be shortened" : "");
  }
}

void print(const EmbedOptions& o, const std::string& text, size_t tokens, std::vector<float> vector) {
  shorten(vector, o.dimensions > 0 ? std::optional(o.dimensions) : std::nullopt);
  if (o.model.json) return print_json({{"text", text}, {"tokens", tokens}, {"embedding", vector}});
  fmt::print("{}\n", fmt::join(vector, " "));
}

// Some texts at a time; prints in the order of the texts.
void embed(const EmbedOptions& o, Runner& runner, const std::vector<std::string>& texts,
           std::vector<std::vector<int32_t>> tokens) {
  Engine engine(runner, {.prefix_cache = false});
  for (size_t first = 0; first < texts.size(); first += kAtOnce) {
    const size_t count = std::min(kAtOnce, texts.size() - first);
    std::map<RequestId, size_t> index;
    std::vector<std::vector<float>> vectors(count);
    for (size_t i = 0; i < count; ++i) {
      Request request;
      request.kind = RequestKind::Embed;
      request.prompt = tokens[first + i];
      index[engine.submit(std::move(request))] = i;
    }
    const auto keep = [&](const Emission& e) {
      if (e.finish == FinishReason::Error) fail(ErrorKind::Io, "{}", e.error);
      if (!e.embedding.empty()) vectors[index.at(e.id)].assign(e.embedding.begin(), e.embedding.end());
    };
    while (engine.step(keep)) throw_if_interrupted();
    for (size_t i = 0; i < count; ++i) print(o, texts[first + i], tokens[first + i].size(), std::move(vectors[i]));
  }
}

void run(const EmbedOptions& o) {
  const auto texts = read_texts(o);
  const auto source = open_model(o.model);
  const auto tokenizer = load_tokenizer(*source);
  const std::string prompt = prompt_text(o, *source);
  LoadOptions load = load_options(o.model);
  const Runner plan(source, load);
  check(o, plan);
  std::vector<std::vector<int32_t>> tokens;
  int64_t longest = 1;
  for (const std::string& text : texts) {
    tokens.push_back(tokenizer->encode(prompt + text));
    longest = std::max(longest, std::ssize(tokens.back()));
    if (tokens.back().empty()) fail(ErrorKind::Usage, "a text without tokens has no vector");
    if (std::ssize(tokens.back()) > plan.options().context) {
      fail(ErrorKind::Usage, "text {} has {} tokens, more than the {} of the context", tokens.size(),
           tokens.back().size(), plan.options().context);
    }
  }
  load.context = longest;
  load.sequences = static_cast<int64_t>(std::min(kAtOnce, texts.size()));
  const auto runner = load_runner(source, load);
  embed(o, *runner, texts, std::move(tokens));
}

}  // namespace

void add_embed(CLI::App& app) {
  auto* verb = app.add_subcommand("embed", "Print the vectors of texts");
  auto o = std::make_shared<EmbedOptions>();
  add_model_options(*verb, o->model, ModelArgument::Flag, JsonFlag::No);
  verb->add_option("TEXT", o->texts, "texts; without any and without --file, the lines of stdin");
  verb->add_option("-f,--file", o->file, "a file with a text in each line; - for stdin");
  verb->add_option("--dimensions", o->dimensions, "numbers of a vector; default: all that the model gives")
      ->check(whole_number(1, 1 << 20));
  verb->add_option("--prompt", o->prompt,
                   "name of the prompt to put before each text, such as query or document; default: as the folder's "
                   "config_sentence_transformers.json says");
  verb->add_flag("--json", o->model.json, "one JSON object for each text, in a line of its own");
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
