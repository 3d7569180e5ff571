// millrace logits: the logits of every position, for conformance.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "cli/checks.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/token_list.h"
#include "engine/step_batch.h"

namespace millrace {
namespace {

struct LogitsOptions {
  ModelOptions model;
  std::string tokens;
  int64_t chunk = 0;
};

void print_summary(const std::vector<int32_t>& tokens, const std::vector<std::vector<float>>& rows) {
  fmt::print("{:>5} {:>8}  {:>8} {:>10}\n", "pos", "token", "argmax", "logit");
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto best = std::max_element(rows[i].begin(), rows[i].end());
    fmt::print("{:>5} {:>8}  {:>8} {:>10.4f}\n", i, tokens[i], best - rows[i].begin(), *best);
  }
}

void run(const LogitsOptions& o) {
  auto source = open_model(o.model);
  auto load = load_options(o.model);
  auto tokens = parse_token_list(o.tokens, 0);
  if (tokens.empty()) fail(ErrorKind::Usage, "--tokens: at least one token is needed");
  if (load.context == 0) load.context = static_cast<int64_t>(tokens.size());
  load.rows = o.chunk > 0 ? o.chunk : std::min<int64_t>(512, static_cast<int64_t>(tokens.size()));
  load.logit_rows = load.rows;
  auto runner = load_runner(std::move(source), load);
  require_logits(*runner);
  tokens = parse_token_list(o.tokens, runner->model().config().vocab);
  const auto length = static_cast<int32_t>(tokens.size());
  if (length > runner->options().context)
    fail(ErrorKind::Usage, "{} tokens do not fit in a context of {}", length, runner->options().context);

  BlockTable table = runner->state().new_table(length);
  MR_ASSERT(table.reserve(length));
  const Slot slot = runner->state().new_slot();
  StepBatch step(load.rows, 1, load.rows);
  std::vector<std::vector<float>> rows;
  for (int32_t done = 0; done < length; done += static_cast<int32_t>(load.rows)) {
    const auto chunk = std::span(tokens).subspan(static_cast<size_t>(done),
                                                 static_cast<size_t>(std::min<int64_t>(load.rows, length - done)));
    step.clear();
    step.add(chunk, done, length, table.pages(), StepBatch::Logits::All, slot.id());
    const Matrix logits = runner->forward(step.batch());
    for (int64_t i = 0; i < logits.rows; ++i)
      rows.emplace_back(logits.row<float>(i), logits.row<float>(i) + logits.cols);
    throw_if_interrupted();
  }
  if (!o.model.json) return print_summary(tokens, rows);
  print_json({{"tokens", tokens}, {"logits", rows}});
}

}  // namespace

void add_logits(CLI::App& app) {
  auto* verb = app.add_subcommand("logits", "Print the logits of every position of a list of tokens");
  auto o = std::make_shared<LogitsOptions>();
  add_model_options(*verb, o->model);
  verb->add_option("--tokens", o->tokens, "token ids: 1,2,3")->required();
  verb->add_option("--chunk", o->chunk, "compute this many positions at a time")->check(whole_number(1, 4096));
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
