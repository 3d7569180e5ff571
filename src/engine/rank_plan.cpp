// Plans from dry passes: kernels, buffers and workspace all come from the model's own forward pass.
#include <algorithm>

#include "base/log.h"
#include "dataflow/buckets.h"
#include "engine/draw_tables.h"
#include "engine/rank.h"

namespace millrace {
namespace {

// Step shapes that cover every bucket of every op. Largest first, because batch-invariant plans need the largest step.
std::vector<StepShape> shapes_to_plan(const LoadOptions& o, bool pools) {
  std::vector<int64_t> rows = row_buckets(o.rows), wanted = row_buckets(o.logit_rows);
  std::reverse(rows.begin(), rows.end());
  std::vector<StepShape> shapes;
  for (int64_t m : rows) {
    m = std::min(m, o.rows);
    shapes.push_back({.rows = m, .wanted = std::min(m, o.logit_rows)});
  }
  if (pools) {  // layers behind the pooling have a row for each sequence
    for (int64_t n : row_buckets(o.sequences)) {
      n = std::min(n, o.sequences);
      shapes.push_back(
          {.rows = o.rows, .sequences = n, .context = o.rows / n, .wanted = n, .hidden = n, .gathered = true});
    }
    return shapes;
  }
  for (int64_t r : wanted) {
    r = std::min({r, o.logit_rows, o.rows});
    shapes.push_back({.rows = o.rows, .wanted = r, .gathered = true});
    shapes.push_back({.rows = o.rows, .wanted = r, .hidden = r, .gathered = true});
  }
  return shapes;
}

int64_t features_width(const Model& target) {
  return target.config().hidden * std::max<int64_t>(1, std::ssize(target.taps.layers));
}

}  // namespace

void Rank::run_dry(const StepShape& shape, Activations& buffers) {
  const std::vector<int32_t> tokens(static_cast<size_t>(shape.rows)), wanted(static_cast<size_t>(shape.wanted));
  std::vector<SequenceSlice> slices;
  const auto each = static_cast<int32_t>(shape.rows / shape.sequences), length = static_cast<int32_t>(shape.context);
  for (int32_t i = 0; i < shape.sequences; ++i) slices.push_back({i * each, each, length - each, length, {}});
  PlacedBatch batch{{tokens, slices, wanted, shape.hidden}};
  const std::vector<int32_t> adapters(tokens.size());
  if (shape.adapters) {
    batch.adapters = adapters;
    batch.wanted_adapters = std::span(adapters).first(wanted.size());
  }
  batch.wants_every_row = tokens.size() == wanted.size() && !shape.gathered;
  if (model_->is_draft_head()) {
    const auto& target = *options_.drafts_for.model;
    const int64_t own = model_->config().hidden, cols = shape.own ? own : features_width(target);
    const DType dtype = shape.own ? ops_->working() : options_.drafts_for.features;
    batch.features = {{dtype, shape.rows, cols, cols, nullptr}, tokens, shape.own};
  }
  Pass pass(*ops_, buffers, *dry_state_, model_->config(), batch);
  pass.scores = &knowledge_;
  model_->forward(pass);
  ops_->finish_pass();
  if (ops_->mode() != Ops::Mode::Plan || !options_.device_draws || pass.logits.rows == 0) return;
  ops_->argmax({pass.logits});
  if (DrawTables::can_draw(*ops_, options_.logit_rows, pass.logits.cols)) ops_->sample({pass.logits});
}

void Rank::dry_pass(const StepShape& shape, Ops::Mode mode, OpTimes* times, std::vector<OpCall>* calls) {
  Activations buffers;  // separate, because the shape may exceed the planned sizes
  ops_->observe(mode, times, calls);
  ops_->expect_recorded(shape.rows == shape.wanted && can_record(shape.rows));
  run_dry(shape, buffers);
  ops_->observe(Ops::Mode::Run);
}

void Rank::plan_steps() {
  dry_state_ = std::make_unique<StateCache>(layout_, StateOptions{*options_.kv_type, options_.block_size});
  ops_->plan_for({options_.rows, options_.places(), options_.context});
  ops_->observe(Ops::Mode::Plan);
  for (StepShape shape : shapes_to_plan(options_, model_->pools())) {
    run_dry(shape, activations_);
    if (options_.adapters && !model_->pools() && !model_->is_draft_head()) {
      shape.adapters = true;
      run_dry(shape, activations_);
    }
    if (!model_->is_draft_head()) continue;
    shape.own = false;
    run_dry(shape, activations_);
  }
  ops_->observe(Ops::Mode::Run);
  ops_->warn_of_unused_forced_kernels();
}

void Rank::plan_memory() {
  plan_.available = device_memory();
  const auto fp8 = weights_->fp8_packed_as();
  plan_.add(fp8 ? fmt::format("packed weights (FP8 as {})", name(*fp8)) : "packed weights", weights_->packed_bytes());
  plan_.add("weights read in place", weights_->in_place_bytes());
  if (device_->is_host() && weights_->repack_bytes() > 0) plan_.add("repacking at load", weights_->repack_bytes());
  plan_.add(fmt::format("KV cache of {} positions", options_.kv_tokens),
            layout_.bytes_per_token(*options_.kv_type) * static_cast<size_t>(options_.kv_tokens));
  if (const StateOptions state = state_options(); state.slots > 0) {
    plan_.add(fmt::format("recurrent state of {} slots", state.slots),
              layout_.bytes_per_slot() * static_cast<size_t>(state.slots));
  }
  plan_.add("activations", activations_.bytes() + BatchTables::bytes(table_sizes()));
  plan_.add("workspace", ops_->workspace_bytes());
  if (options_.adapters) plan_.add("table of adapters", Adapters::table_bytes(weights_->sites().size()));
  if (adapter_bytes() > 0) plan_.add("adapters", adapter_bytes());
  if (stream_experts_ && host_side_ != nullptr) plan_.add("stages of streamed weights", host_side_->device_bytes());
  if (!device_->is_host()) plan_.add("draws", DrawTables::bytes(options_.logit_rows));
  log().info("memory plan: {}", plan_.to_string());
}

}  // namespace millrace
