#include "engine/runner.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "hardware/detect.h"
#include "hardware/this_machine.h"

namespace millrace {
namespace {

IsaSet allowed_isa(const std::string& level) {
  if (level.empty()) return detect_isa();
  // A level counts as there when the machine has anything of it that the level below does not include.
  std::string names;
  IsaSet below;
  for (const auto& known : isa_levels()) {
    const IsaSet here = known.allowed.both(detect_isa());
    if (known.name == level) {
      if (here == below && here != IsaSet()) fail(ErrorKind::Usage, "--isa {}: this machine does not have it", level);
      return here;
    }
    names += (names.empty() ? "" : ", ") + std::string(known.name);
    below = here;
  }
  fail(ErrorKind::Usage, "--isa {}: unknown here; one of {}", level, names);
}

void check_kv_type(DType kv, const Model& model) {
  const bool known = kv == DType::F32 || kv == DType::F16 || kv == DType::BF16 || kv == DType::Q8_0;
  if (!known) fail(ErrorKind::Usage, "--kv-type {}: one of f32, f16, bf16, q8_0", name(kv));
  for (const auto& shape : model.kv_shapes()) {
    if (shape.head_dim % info(kv).block != 0) {
      fail(ErrorKind::Usage, "--kv-type {}: heads of size {} are not whole blocks; use f16", name(kv), shape.head_dim);
    }
  }
}

}  // namespace

Runner::Runner(std::shared_ptr<const WeightSource> source, const LoadOptions& options)
    : source_(std::move(source)), options_(options) {
  hardware_ = this_machine(options_.threads, options_.measure, allowed_isa(options_.isa));
  options_.threads = hardware_.threads;
  const int64_t least =
      options_.batch_invariant ? std::max(kLeastInvariantRows, options_.sequences) : options_.sequences;
  options_.rows = std::max(options_.rows, least);
  options_.logit_rows = std::max(options_.logit_rows, least);
  plans_ = PlanCache::load(PlanCache::file_for(hardware_.id, hardware_.threads));
  pool_ = std::make_unique<ThreadPool>(hardware_.threads);
  ops_ = std::make_unique<Ops>(
      cpu_kernels(), hardware_, *pool_, &plans_,
      OpsOptions{options_.exact ? Precision::Exact : Precision::Fast, options_.forced, options_.batch_invariant});
  weights_ = std::make_unique<Weights>(*source_, *ops_);
  model_ = find_architecture(*source_).make(*source_, *weights_);
  weights_->check_all_used();

  options_.kv_type = options_.kv_type.value_or(options_.exact ? DType::F32 : DType::F16);
  check_kv_type(*options_.kv_type, *model_);
  decide_context();
  plan_memory();
}

void Runner::load(const Progress& progress) {
  plan_.available = available_memory();
  plan_.check(source_->origin());
  weights_->pack(progress);
  kv_ = std::make_unique<KvCache>(
      model_->kv_shapes(), KvOptions{*options_.kv_type, options_.block_size, static_cast<int32_t>(options_.kv_tokens)});
  ops_->reserve_workspace();
  activations_ = std::make_unique<Activations>(model_->widths(), options_.rows, options_.logit_rows);
}

void Runner::decide_context() {
  const auto& config = model_->config();
  if (options_.context > config.context) {
    fail(ErrorKind::Usage, "--ctx {}: the model was trained for {} positions", options_.context, config.context);
  }
  const auto weights = static_cast<int64_t>(weights_->packed_bytes() + weights_->in_place_bytes());
  const auto per_token = static_cast<int64_t>(KvCache::bytes_per_token(model_->kv_shapes(), *options_.kv_type));
  const int64_t room = (available_memory() - weights) * 3 / 4 / std::max<int64_t>(1, per_token);
  if (options_.context == 0) {
    const int64_t sharers = options_.kv_tokens == 0 ? options_.sequences : 1;
    options_.context = std::clamp<int64_t>(room / sharers, 256, config.context);
    if (options_.context < config.context) {
      log().info("context limited to {} of the model's {} positions by available memory", options_.context,
                 config.context);
    }
  }
  // Each sequence takes whole pages, and the longest must find room.
  const int64_t one = (options_.context + options_.block_size - 1) / options_.block_size * options_.block_size;
  if (options_.kv_tokens == LoadOptions::kWhatFits) options_.kv_tokens = std::min(room, one * options_.sequences);
  options_.kv_tokens = options_.kv_tokens == 0 ? one * options_.sequences : std::max(one, options_.kv_tokens);
  if (options_.kv_tokens > (int64_t(1) << 31) - 1) fail(ErrorKind::Usage, "--ctx {}: too large", options_.context);
}

void Runner::plan_memory() {
  for (auto& linear : weights_->linears()) ops_->plan(linear, std::max(options_.rows, options_.logit_rows));
  for (AttentionProblem problem : model_->attention_problems()) {
    problem.kv = *options_.kv_type;
    problem.precision = ops_->precision();
    problem.block_size = options_.block_size;
    problem.sequences = options_.sequences;
    problem.rows = options_.rows;
    problem.context = options_.context;
    ops_->plan(problem);
  }
  plan_.available = available_memory();
  plan_.add("packed weights", weights_->packed_bytes());
  plan_.add("weights read in place", weights_->in_place_bytes());
  plan_.add(fmt::format("KV cache of {} positions", options_.kv_tokens),
            KvCache::bytes_per_token(model_->kv_shapes(), *options_.kv_type) * static_cast<size_t>(options_.kv_tokens));
  plan_.add("activations", Activations::bytes(model_->widths(), options_.rows, options_.logit_rows));
  plan_.add("workspace", ops_->workspace_bytes());
  log().info("memory plan: {}", plan_.to_string());
}

Matrix Runner::forward(const Batch& batch, FunctionRef<void()> meanwhile) {
  meanwhile();  // before: all cores compute
  Pass pass(*ops_, *activations_, *kv_, model_->config(), batch);
  model_->forward(pass);
  hidden_ = activations_->selected.first_rows(batch.without_logits);
  hidden_.data = reinterpret_cast<std::byte*>(activations_->selected.row<float>(pass.logits.rows));
  return pass.logits;
}

}  // namespace millrace
