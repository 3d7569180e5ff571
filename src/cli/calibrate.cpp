// millrace calibrate: measures the range of a model's attention scores over a text, and keeps it for kernels with a
// unified softmax maximum.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "base/interrupt.h"
#include "base/progress.h"
#include "base/write_file.h"
#include "cli/calibration_text.h"
#include "cli/checks.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/read_text.h"
#include "engine/measure/calibration.h"
#include "engine/text_model.h"

namespace millrace {
namespace {

struct CalibrateOptions {
  ModelOptions model;
  std::string file;
  int64_t tokens = 2048;
};

struct Tokens {
  std::vector<int32_t> ids;
  std::string text;  // description of their origin
};

// Models without a tokenizer get random tokens.
Tokens choose_tokens(const CalibrateOptions& o, const WeightSource& source, int64_t vocab) {
  if (!o.file.empty()) return {load_tokenizer(source)->encode(read_file_or_stdin(o.file)), o.file};
  if (has_tokenizer(source)) return {load_tokenizer(source)->encode(std::string(kCalibrationText)), "a text of ours"};
  std::mt19937 random(1);
  std::vector<int32_t> ids(512);
  for (auto& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
  return {std::move(ids), "random tokens"};
}

struct Widest {
  int64_t layer = 0, head = 0;
  ScoreRange all, range{0, 0};
};
Widest widest(const Calibration& c) {
  Widest w;
  for (int64_t layer = 0; layer < c.layers(); ++layer) {
    for (int64_t head = 0; head < c.heads; ++head) {
      const ScoreRange& r = c.layer(layer)[static_cast<size_t>(head)];
      w.all = {std::min(w.all.least, r.least), std::max(w.all.most, r.most)};
      if (r.most - r.least > w.range.most - w.range.least) w = {layer, head, w.all, r};
    }
  }
  return w;
}

void report(const CalibrateOptions& o, const Runner& runner, const Calibration& c, const std::string& text,
            const std::filesystem::path& file) {
  const DType kv = *runner.options().kv_type;
  int64_t fit = 0;
  for (int64_t i = 0; i < c.layers(); ++i) fit += c.phi(i, kv).empty() ? 0 : 1;
  const Widest w = widest(c);
  if (o.model.json) {
    auto layers = nlohmann::json::array();
    for (int64_t i = 0; i < c.layers(); ++i) {
      auto& heads = layers.emplace_back(nlohmann::json::array());
      for (const auto& r : c.layer(i)) heads.push_back({{"least", r.least}, {"most", r.most}});
    }
    print_json({{"model", runner.source().origin()},
                {"text", text},
                {"tokens", c.tokens},
                {"kv_type", name(kv)},
                {"layers", c.layers()},
                {"heads", c.heads},
                {"calibrated_layers", fit},
                {"least", w.all.least},
                {"most", w.all.most},
                {"ranges", layers},
                {"file", file.string()}});
    return;
  }
  fmt::print("{} tokens of {}: the largest scores of {} heads in each of {} layers lie between {:.1f} and {:.1f}\n",
             c.tokens, text, c.heads, c.layers(), w.all.least, w.all.most);
  fmt::print("widest: head {} of layer {}, from {:.1f} to {:.1f}\n", w.head, w.layer, w.range.least, w.range.most);
  fmt::print("a unified maximum fits a {} KV cache in {} layers", name(kv), fit);
  fmt::print("{}\n", fit == c.layers() ? "" : "; the others keep to exact maxima");
  fmt::print("kept in {}; 'millrace tune' measures what it is worth\n", file.string());
}

void run(const CalibrateOptions& o) {
  auto source = open_model(o.model);
  auto load = load_options(o.model);
  const Runner plan(source, load);
  require_logits(plan);
  Tokens tokens = choose_tokens(o, *source, plan.model().config().vocab);
  load.context = std::min({plan.options().context, o.tokens, std::max<int64_t>(1, std::ssize(tokens.ids))});
  load.rows = std::min<int64_t>(512, load.context);
  const auto file = Calibration::file_for(*source);
  require_writable(file);
  auto runner = load_runner(source, load);
  std::unique_ptr<Progress> bar;
  const Calibration calibration = calibrate(*runner, tokens.ids, [&](int64_t done, int64_t total) {
    if (!bar) bar = std::make_unique<Progress>("calibrating", total);
    bar->set(done);
    throw_if_interrupted();
  });
  bar.reset();
  calibration.save(file, source->origin());
  report(o, *runner, calibration, tokens.text, file);
}

}  // namespace

void add_calibrate(CLI::App& app) {
  auto* verb =
      app.add_subcommand("calibrate", "Measure the range of a model's attention scores, for a unified softmax maximum");
  auto o = std::make_shared<CalibrateOptions>();
  add_model_options(*verb, o->model);
  verb->add_option("-f,--file", o->file, "the text to read; - for stdin; default: a built-in text");
  verb->add_option("--tokens", o->tokens, "stop after this many of its tokens")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
