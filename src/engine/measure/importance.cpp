#include "engine/measure/importance.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/step_batch.h"

namespace millrace {
namespace {

// Sums of squared inputs by layer. Matrices of one layer (q, k and v; gate and up) share their input.
class InputSums final : public InputObserver {
 public:
  explicit InputSums(Runner& runner) : pool_(runner.rank().pool()) {
    const Weights& weights = runner.rank().weights();
    for (const Linear* layer : runner.ops().linears()) add(layer, weights.matrices_of(*layer), 1, layer->k);
    for (const Grouped* layer : runner.ops().groupeds())
      add(layer, weights.matrices_of(*layer), layer->weights.groups, layer->weights.k);
  }

  void see(const Linear& layer, Matrix x) override {
    collect(&layer, x, x.rows, [](int64_t row) { return Source{row, 0}; });
  }

  void see(const Grouped& layer, Matrix x, const Routing& routing) override {
    collect(&layer, x, routing.pairs(), [&](int64_t pair) {
      return Source{layer.sum ? pair : pair / routing.per_row, routing.chosen[pair]};
    });
  }

  std::map<std::string, ImatrixSums::Entry, std::less<>> entries(const std::string& origin) const {
    std::map<std::string, ImatrixSums::Entry, std::less<>> entries;
    for (const auto& [layer, sums] : sums_) {
      for (const double square : sums.squares) {
        if (!std::isfinite(square))
          fail(ErrorKind::BadFile, "{}: inputs are not numbers: its weights are damaged", origin);
      }
      ImatrixSums::Entry entry{sums.columns, {}, {}};
      entry.squares.assign(sums.squares.begin(), sums.squares.end());
      entry.counts.assign(sums.counts.begin(), sums.counts.end());
      for (const std::string& name : sums.names) entries.emplace(name, entry);
    }
    return entries;
  }

 private:
  struct Sums {
    std::vector<std::string> names;
    int64_t columns = 0;
    std::vector<double> squares;  // [experts][columns]
    std::vector<int64_t> counts;  // [experts]
  };
  struct Source {
    int64_t row;
    int64_t expert;
  };

  void add(const void* layer, std::vector<std::string> names, int64_t experts, int64_t columns) {
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("blk."); });
    if (names.empty()) return;
    sums_[layer] = {std::move(names), columns, std::vector<double>(static_cast<size_t>(experts * columns)),
                    std::vector<int64_t>(static_cast<size_t>(experts))};
  }

  template <class SourceOf>
  void collect(const void* layer, Matrix x, int64_t count, SourceOf source_of) {
    const auto found = sums_.find(layer);
    if (found == sums_.end()) return;
    MR_ASSERT(x.dtype == DType::F32);
    Sums& sums = found->second;
    for (int64_t i = 0; i < count; ++i) ++sums.counts[static_cast<size_t>(source_of(i).expert)];
    pool_.parallel_for(sums.columns, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < count; ++i) {
        const Source source = source_of(i);
        const float* values = x.row<float>(source.row);
        double* squares = sums.squares.data() + source.expert * sums.columns;
        for (int64_t c = begin; c < end; ++c) squares[c] += double(values[c]) * double(values[c]);
      }
    });
  }

  ThreadPool& pool_;
  std::map<const void*, Sums> sums_;
};

// An interrupt leaves by an exception, and the ops outlive the observer.
struct Observation {
  Observation(Ops& ops, InputObserver& observer) : ops(ops) { ops.observe_inputs(&observer); }
  ~Observation() { ops.observe_inputs(nullptr); }
  Observation(const Observation&) = delete;
  Ops& ops;
};

void run_window(Runner& runner, StepBatch& step, std::span<const int32_t> window) {
  const auto length = static_cast<int32_t>(window.size());
  BlockTable table = runner.state().new_table(length);
  MR_ASSERT(table.reserve(length));
  const Slot slot = runner.state().new_slot();
  for (int32_t done = 0; done < length;) {
    const auto rows = static_cast<int32_t>(std::min<int64_t>(length - done, runner.options().rows));
    step.clear();
    // The last layers compute only rows whose results are wanted. A model that pools has one result for each sequence.
    const int32_t wanted = runner.model().pools() ? 1 : rows;
    step.add(window.subspan(static_cast<size_t>(done), static_cast<size_t>(rows)), done, length, table.pages(), {},
             {0, wanted}, slot.id());
    runner.forward(step.batch());
    done += rows;
  }
}

}  // namespace

ImatrixSums measure_importance(Runner& runner, std::span<const int32_t> tokens, int64_t most_windows, int32_t bos,
                               const std::function<void(int64_t, int64_t)>& progress) {
  MR_ASSERT(runner.rank().device().is_host());
  const int64_t length = runner.options().context;
  const int64_t windows = std::min(most_windows > 0 ? most_windows : INT64_MAX, std::ssize(tokens) / length);
  if (windows == 0)
    fail(ErrorKind::Usage, "the text has {} tokens, fewer than one window of {}", tokens.size(), length);
  StepBatch step(runner.options().rows, 1, runner.options().logit_rows);
  InputSums sums(runner);
  const Observation observation(runner.ops(), sums);
  for (int64_t i = 0; i < windows; ++i) {
    progress(i, windows);
    std::vector<int32_t> window(tokens.begin() + i * length, tokens.begin() + (i + 1) * length);
    if (bos >= 0) window[0] = bos;
    run_window(runner, step, window);
  }
  progress(windows, windows);
  return {.chunks = static_cast<uint32_t>(windows),
          .chunk_size = static_cast<uint32_t>(length),
          .entries = sums.entries(runner.source().origin())};
}

}  // namespace millrace
