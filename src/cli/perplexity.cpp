// millrace perplexity: how well a model predicts a text, computed as llama.cpp does.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/read_text.h"
#include "engine/measure/perplexity.h"
#include "engine/text_model.h"

namespace millrace {
namespace {

struct PerplexityOptions {
  ModelOptions model;
  std::string file;
  int64_t chunks = 0;
};

void run(const PerplexityOptions& o) {
  auto source = open_model(o.model);
  const std::string text = read_file_or_stdin(o.file);
  const auto tokenizer = load_tokenizer(*source);
  const auto tokens = tokenizer->encode(text);
  auto load = load_options(o.model);
  if (load.context == 0) load.context = 512;
  if (load.context < 4) fail(ErrorKind::Usage, "--ctx {}: a window needs at least 4 tokens", load.context);
  const auto window = static_cast<int32_t>(load.context);
  load.rows = std::min<int64_t>(256, load.context);
  load.logit_rows = load.rows;
  auto runner = load_runner(std::move(source), load);
  const auto with_bos = tokenizer->encode("");  // the tokens that every text begins with
  const int32_t bos = with_bos.empty() ? -1 : with_bos.front();

  std::unique_ptr<Progress> bar;
  const auto result =
      measure_perplexity(*runner, tokens, window, o.chunks, bos, [&](int64_t done, int64_t total, double) {
        if (!bar) bar = std::make_unique<Progress>("perplexity", total);
        bar->set(done);
        throw_if_interrupted();
      });
  bar.reset();
  if (o.model.json) {
    print_json(
        {{"perplexity", result.perplexity}, {"tokens", result.tokens}, {"ctx", window}, {"windows", result.windows}});
  } else {
    fmt::print("perplexity {:.4f} over {} tokens in {} windows of {}\n", result.perplexity, result.tokens,
               result.windows, window);
  }
}

}  // namespace

void add_perplexity(CLI::App& app) {
  auto* verb = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  auto o = std::make_shared<PerplexityOptions>();
  add_model_options(*verb, o->model);
  verb->add_option("-f,--file", o->file, "the text; - for stdin")->required();
  verb->add_option("--chunks", o->chunks, "stop after this many windows; 0: the whole text")
      ->check(CLI::Range(0, 1 << 30));
  verb->get_option("--ctx")->description("tokens of a window; 0: 512");
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
