// millrace perplexity: how well a model predicts a text, computed as llama.cpp does.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/write_file.h"
#include "cli/checks.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/read_text.h"
#include "engine/measure/divergence.h"
#include "engine/measure/perplexity.h"
#include "engine/measure/saved_logits.h"
#include "engine/measure/scored_rows.h"
#include "engine/text_model.h"

namespace millrace {
namespace {

struct PerplexityOptions {
  ModelOptions model;
  std::string file, base, save;
  int64_t chunks = 0;
  bool kl = false;
};

// Logits of the same windows to compare with: a file of --save-logits, or a second run with --exact.
std::unique_ptr<Runner> load_exact(const PerplexityOptions& o, LoadOptions load) {
  if (!o.kl || !o.base.empty()) return nullptr;
  load.exact = true;
  load.kv_type.reset();
  load.forced.clear();
  return load_runner(open_model(o.model), load);
}

std::optional<Divergence> measure_rows(const PerplexityOptions& o, Runner& runner, const LoadOptions& load,
                                       const ScoredText& text) {
  if (!o.kl && o.save.empty()) return std::nullopt;
  const int64_t vocab = runner.model().config().vocab;
  std::optional<LogitsReader> base;
  std::optional<LogitsWriter> saved;
  if (!o.base.empty()) base.emplace(o.base, text, vocab);
  if (!o.save.empty()) saved.emplace(o.save, text, vocab);
  const auto exact = load_exact(o, load);
  std::vector<Runner*> runners{&runner};
  if (exact) runners.push_back(exact.get());

  Divergence divergence;
  std::unique_ptr<Progress> bar;
  const auto row_of = [](const Matrix& logits, int64_t row) {
    return std::span(logits.row<float>(row), static_cast<size_t>(logits.cols));
  };
  const auto on_row = [&](std::span<const Matrix> logits, int64_t row) {
    const auto own = row_of(logits[0], row);
    if (saved) saved->add(own);
    if (o.kl) divergence.add(kl_divergence(base ? base->next() : row_of(logits[1], row), own));
  };
  score_rows(runners, text, on_row, [&](int64_t done, int64_t total) {
    if (!bar) bar = std::make_unique<Progress>(o.kl ? "divergence" : "logits", total);
    bar->set(done);
    throw_if_interrupted();
  });
  if (saved) saved->finish();
  if (!o.kl) return std::nullopt;
  return divergence;
}

void run(const PerplexityOptions& o) {
  if (o.kl && o.base.empty() && o.model.exact)
    fail(ErrorKind::Usage, "--kl without a file compares with --exact: leave one of them out");
  if (!o.save.empty()) require_writable(o.save);
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
  const auto kl = measure_rows(o, *runner, load, {tokens, window, o.chunks, bos});
  if (o.model.json) {
    nlohmann::json json = {
        {"perplexity", result.perplexity}, {"tokens", result.tokens}, {"ctx", window}, {"windows", result.windows}};
    if (kl) json["kl"] = {{"mean", kl->mean()}, {"largest", kl->largest}, {"tokens", kl->tokens}};
    print_json(json);
  } else {
    fmt::print("perplexity {:.4f} over {} tokens in {} windows of {}\n", result.perplexity, result.tokens,
               result.windows, window);
    const std::string base = o.base.empty() ? "--exact" : o.base;
    if (kl) fmt::print("divergence from {} {:.6f} in the mean, {:.4f} at most\n", base, kl->mean(), kl->largest);
  }
}

}  // namespace

void add_perplexity(CLI::App& app) {
  auto* verb = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  auto o = std::make_shared<PerplexityOptions>();
  add_model_options(*verb, o->model);
  verb->add_option("-f,--file", o->file, "the text; - for stdin")->required();
  verb->add_option("--chunks", o->chunks, "stop after this many windows; 0: the whole text")
      ->check(whole_number(0, 1 << 30));
  auto* kl = verb->add_option("--kl", o->base,
                              "also the KL divergence of the predictions from those in a file of --save-logits; "
                              "without a file from those of --exact, which is loaded beside")
                 ->expected(0, 1)
                 ->option_text("[FILE]");
  verb->add_option("--save-logits", o->save, "keep the logits of the scored tokens in a file, for --kl FILE");
  verb->get_option("--ctx")->description("tokens of a window; 0: 512");
  verb->callback([o, kl] {
    o->kl = kl->count() > 0;
    run(*o);
  });
}

}  // namespace millrace
