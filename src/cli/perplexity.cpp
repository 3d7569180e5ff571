// millrace perplexity: how well a model predicts a text, computed as llama.cpp does.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/read_text.h"
#include "engine/measure/divergence.h"
#include "engine/measure/perplexity.h"
#include "engine/text_model.h"

namespace millrace {
namespace {

struct PerplexityOptions {
  ModelOptions model;
  std::string file;
  int64_t chunks = 0;
  bool kl = false;
};

// The divergence of a second run from the exact one, over the same windows.
std::optional<Divergence> divergence_of(const PerplexityOptions& o, Runner& runner, LoadOptions load,
                                        std::span<const int32_t> tokens, int32_t window, int32_t bos) {
  if (!o.kl) return std::nullopt;
  load.exact = true;
  load.kv_type.reset();
  load.forced.clear();
  auto exact = load_runner(open_model(o.model), load);
  std::unique_ptr<Progress> bar;
  return measure_divergence(*exact, runner, tokens, window, o.chunks, bos, [&](int64_t done, int64_t total) {
    if (!bar) bar = std::make_unique<Progress>("divergence", total);
    bar->set(done);
    throw_if_interrupted();
  });
}

void run(const PerplexityOptions& o) {
  if (o.kl && o.model.exact) fail(ErrorKind::Usage, "--kl compares with --exact: leave one of them out");
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
  const auto kl = divergence_of(o, *runner, load, tokens, window, bos);
  if (o.model.json) {
    nlohmann::json json = {
        {"perplexity", result.perplexity}, {"tokens", result.tokens}, {"ctx", window}, {"windows", result.windows}};
    if (kl) json["kl"] = {{"mean", kl->mean}, {"largest", kl->largest}, {"tokens", kl->tokens}};
    print_json(json);
  } else {
    fmt::print("perplexity {:.4f} over {} tokens in {} windows of {}\n", result.perplexity, result.tokens,
               result.windows, window);
    if (kl) fmt::print("divergence from --exact {:.6f} in the mean, {:.4f} at most\n", kl->mean, kl->largest);
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
  verb->add_flag("--kl", o->kl,
                 "also the KL divergence of the predictions from those of --exact, which is loaded beside");
  verb->get_option("--ctx")->description("tokens of a window; 0: 512");
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
