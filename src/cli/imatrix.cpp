// millrace imatrix: collects an importance matrix from a text, in llama.cpp's format.
#include "cli/imatrix.h"

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
#include "engine/measure/importance.h"
#include "engine/text_model.h"
#include "formats/quantize_model.h"

namespace millrace {
namespace {

constexpr int64_t kUsualWindow = 512;

struct ImatrixOptions {
  ModelOptions model;
  std::string file, out;
  int64_t chunks = 0;
};

void run(const ImatrixOptions& o) {
  const LoadOptions load = load_options(o.model);
  if (load.device.kind == DeviceChoice::Cuda)
    fail(ErrorKind::Unsupported, "--device {}: an importance matrix is collected on the CPU", o.model.device);
  auto source = open_model(o.model);
  refuse_to_replace(o.out, *source);
  require_writable(o.out);
  const ImatrixSums sums = importance_of_text(std::move(source), load, o.file, o.chunks);
  write_imatrix(o.out, sums);
  const int64_t tokens = int64_t{sums.chunks} * sums.chunk_size;
  if (o.model.json) {
    print_json({{"file", o.out}, {"matrices", sums.entries.size()}, {"tokens", tokens}, {"windows", sums.chunks}});
  } else {
    fmt::print("{}: {} matrices from {} tokens in {} windows of {}\n", o.out, sums.entries.size(), tokens, sums.chunks,
               sums.chunk_size);
  }
}

}  // namespace

ImatrixSums importance_of_text(std::shared_ptr<const WeightSource> source, LoadOptions load, const std::string& file,
                               int64_t chunks) {
  const auto tokenizer = load_tokenizer(*source);
  const auto tokens = tokenizer->encode(read_file_or_stdin(file));
  const auto with_bos = tokenizer->encode("");  // the tokens that every text begins with
  load.device = DeviceChoice::Cpu;
  if (load.context == 0) load.context = kUsualWindow;
  load.rows = load.context;
  load.logit_rows = load.rows;
  const auto runner = load_runner(std::move(source), load);
  std::unique_ptr<Progress> bar;
  ImatrixSums sums = measure_importance(*runner, tokens, chunks, with_bos.empty() ? -1 : with_bos.front(),
                                        [&](int64_t done, int64_t total) {
                                          if (!bar) bar = std::make_unique<Progress>("importance", total);
                                          bar->set(done);
                                          throw_if_interrupted();
                                        });
  sums.datasets = {file};
  return sums;
}

void add_imatrix(CLI::App& app) {
  auto* verb = app.add_subcommand("imatrix", "Collect an importance matrix from a text, for 'quantize --imatrix'");
  auto o = std::make_shared<ImatrixOptions>();
  add_model_options(*verb, o->model);
  verb->add_option("-f,--file", o->file, "the text; - for stdin")->required();
  verb->add_option("-o,--out", o->out, "the GGUF file to write")->required();
  verb->add_option("--chunks", o->chunks, "stop after this many windows; 0: the whole text")
      ->check(whole_number(0, 1 << 30));
  verb->get_option("--ctx")->description("tokens of a window; 0: 512");
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
