#include "engine/step_cost.h"

namespace millrace {
namespace {

// A step of that size that is never computed: its buffers are reserved, not touched.
class ImaginedStep {
 public:
  ImaginedStep(Runner& runner, int64_t rows, int64_t sequences, int64_t context, int64_t logit_rows)
      : runner_(runner),
        kv_(runner.model().state_layout(),
            {*runner.options().kv_type, runner.options().block_size, runner.options().block_size}),
        buffers_({runner.model().widths(), rows, std::max<int64_t>(1, logit_rows), {runner.ops().working()}},
                 host_memory()),
        tokens_(static_cast<size_t>(rows)),
        wanted_(static_cast<size_t>(logit_rows)) {
    const auto each = static_cast<int32_t>(rows / sequences), length = static_cast<int32_t>(context);
    for (int32_t i = 0; i < sequences; ++i) slices_.push_back({i * each, each, length - each, length, {}});
  }

  // The model's own forward pass, with ops that say what they would take instead of running.
  OpTimes times(Ops::Watch how) {
    PlacedBatch batch{{tokens_, slices_, wanted_}};
    batch.wants_every_row = tokens_.size() == wanted_.size();
    Pass pass(runner_.ops(), buffers_, kv_, runner_.model().config(), batch);
    OpTimes times;
    runner_.ops().watch(&times, how);
    runner_.model().forward(pass);
    runner_.ops().watch(nullptr, Ops::Watch::Measure);
    return times;
  }

 private:
  Runner& runner_;
  StateCache kv_;
  Activations buffers_;
  std::vector<int32_t> tokens_, wanted_;
  std::vector<SequenceSlice> slices_;
};

}  // namespace

StepCost step_cost(Runner& runner, int64_t rows, int64_t sequences, int64_t context, int64_t logit_rows) {
  ImaginedStep step(runner, rows, sequences, context, logit_rows);
  return {step.times(Ops::Watch::Expect), step.times(Ops::Watch::Roof).total_us()};
}

}  // namespace millrace
