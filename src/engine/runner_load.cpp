// From a file's config to a model that can compute: choices, the memory plan, and what it says.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "engine/runner.h"
#include "hardware/detect.h"

namespace millrace {
namespace {

// A step this long is bound by arithmetic. On a GPU twice as many rows are 1 % faster still, and take a gigabyte more
// of activations for an 8B.
int64_t usual_rows(const Hardware& hardware) {
  constexpr int64_t kOnCpu = 512, kOnGpu = 4096, kOnLargeGpu = 8192, kLarge = int64_t{64} << 30;
  if (hardware.device == DeviceKind::Cpu) return kOnCpu;
  return hardware.memory_bytes >= kLarge ? kOnLargeGpu : kOnGpu;
}

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

// The format of most of the bytes of the matrices.
DType weight_format(const WeightSource& source) {
  std::map<DType, size_t> bytes;
  for (const auto& tensor : source.tensors()) {
    if (tensor.dtype && tensor.shape.size() > 1) bytes[*tensor.dtype] += tensor.bytes;
  }
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? DType::F32 : most->first;
}

// What linear layers take: on a GPU the weights' own 16-bit format, bf16 for quantized ones. f32 weights stay with f32.
DType working_type(DType weights, const Device& device, bool exact) {
  if (device.is_host() || exact) return DType::F32;
  return is_quantized(weights) ? DType::BF16 : weights;
}

// On a CPU f32 weights stay with f32 arithmetic, in attention too: products in bf16 lose what the file was kept wide
// for.
Precision precision_for(DType weights, const Device& device, bool exact) {
  return exact || (device.is_host() && weights == DType::F32) ? Precision::Exact : Precision::Fast;
}

void check_kv_type(DType kv, const Model& model) {
  const bool known = kv == DType::F32 || kv == DType::F16 || kv == DType::BF16 || kv == DType::Q8_0;
  if (!known) fail(ErrorKind::Usage, "--kv-type {}: one of f32, f16, bf16, q8_0", name(kv));
  const StateLayout layout = model.state_layout();
  for (const auto& shape : layout.paged()) {
    for (const int dim : {shape.key_dim, shape.value_dim}) {
      if (dim % info(kv).block != 0)
        fail(ErrorKind::Usage, "--kv-type {}: heads of size {} are not whole blocks; use f16", name(kv), dim);
    }
  }
}

template <class Op>
void tell_if_missed(const Planner<Op>& planner) {
  if (!planner.misses_forced()) return;
  log().warn("--kernel {}={}: runs nothing of this model here; others are taken", Op::kName, planner.forced());
}

}  // namespace

Runner::Runner(std::shared_ptr<const WeightSource> source, const LoadOptions& options)
    : source_(std::move(source)), options_(options) {
  const IsaSet isa = allowed_isa(options_.isa);
  device_ = open_device({options_.device, options_.threads, options_.measure, isa});
  options_.threads = device_->is_host() ? hardware().threads : detect_cpu(options_.threads, isa).threads;
  if (options_.rows == 0) options_.rows = usual_rows(hardware());
  options_.rows = std::max(options_.rows, options_.sequences);
  options_.logit_rows = std::max(options_.logit_rows, options_.sequences);
  plans_ = PlanCache::load(PlanCache::file_for(hardware().id, hardware().threads));
  pool_ = std::make_unique<ThreadPool>(options_.threads);
  const DType weights = weight_format(*source_);
  const DType working = working_type(weights, *device_, options_.exact);
  ops_ = std::make_unique<Ops>(device_->is_host() ? cpu_kernels() : cuda_kernels(), *device_, *pool_, &plans_,
                               OpsOptions{.precision = precision_for(weights, *device_, options_.exact),
                                          .forced = options_.forced,
                                          .working = working,
                                          .batch_invariant = options_.batch_invariant});
  weights_ = std::make_unique<Weights>(*source_, *ops_);
  model_ = find_architecture(*source_).make(*source_, *weights_);
  weights_->check_all_used();

  const DType fast_kv = working == DType::F32 ? DType::F16 : working;
  options_.kv_type = options_.kv_type.value_or(options_.exact ? DType::F32 : fast_kv);
  check_kv_type(*options_.kv_type, *model_);
  read_calibration();
  decide_context();
  plan_memory();
}

Activations::Sizes Runner::activation_sizes() const {
  return {
      model_->widths(), ops_->padded_rows(options_.rows), ops_->padded_rows(options_.logit_rows), {ops_->working()}};
}

BatchTables::Sizes Runner::table_sizes() const {
  const int64_t pages = (options_.context + options_.block_size - 1) / options_.block_size;
  return {options_.rows, std::min(options_.rows, options_.sequences), options_.logit_rows, pages};
}

// Each running sequence has a slot; as many hold snapshots.
StateOptions Runner::state_options() const {
  const bool has_slots = !model_->state_layout().slots().empty();
  return {*options_.kv_type, options_.block_size, static_cast<int32_t>(options_.kv_tokens),
          has_slots ? static_cast<int32_t>(2 * options_.sequences) : 0};
}

void Runner::load(const Progress& progress) {
  plan_.available = device_->available_memory();
  plan_.check(source_->origin());
  weights_->pack(progress);
  kv_ = std::make_unique<StateCache>(model_->state_layout(), state_options(), device_->memory());
  if (options_.populate_kv && device_->is_host()) kv_->populate(*pool_);
  ops_->reserve_workspace();
  activations_ = std::make_unique<Activations>(activation_sizes(), device_->memory());
  tables_ = std::make_unique<BatchTables>(table_sizes(), options_.block_size, *device_);
  const auto& config = model_->config();
  options_.device_draws |= !device_->is_host();
  results_ =
      std::make_unique<StepResults>(*device_, options_.device_draws, options_.logit_rows, config.vocab, config.hidden);
  draws_ =
      std::make_unique<DrawTables>(*device_, options_.device_draws, options_.logit_rows, config.vocab, ops_->kernels());
  place_calibration();
  recorded_.reserve(kRecordedSteps);
  started_.reserve(Device::kStepsAtOnce);
}

void Runner::decide_context() {
  const auto& config = model_->config();
  const bool may_be_longer = options_.past_training && !config.learned_positions;
  if (options_.context > config.context && !may_be_longer) {
    fail(ErrorKind::Usage, "--ctx {}: the model was trained for {} positions", options_.context, config.context);
  }
  const auto slots = static_cast<size_t>(state_options().slots) * model_->state_layout().bytes_per_slot();
  const auto weights = static_cast<int64_t>(weights_->packed_bytes() + weights_->in_place_bytes() + slots);
  const auto per_token = static_cast<int64_t>(model_->state_layout().bytes_per_token(*options_.kv_type));
  const int64_t room = (device_->available_memory() - weights) * 3 / 4 / std::max<int64_t>(1, per_token);
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
  if (options_.kv_tokens > (int64_t(1) << 31) - 1) {
    fail(ErrorKind::Usage,
         "a KV cache of {} positions is too large; give a smaller --ctx or --kv-tokens, or fewer sequences",
         options_.kv_tokens);
  }
}

void Runner::plan_memory() {
  for (auto& linear : weights_->linears()) {
    const bool is_head = &linear == &weights_->linears().back();  // architectures declare the output matrix last
    ops_->plan(linear, is_head ? options_.logit_rows : std::max(options_.rows, options_.logit_rows));
  }
  for (AttentionProblem problem : attention_problems()) {
    problem.sequences = options_.sequences;
    problem.rows = options_.rows;
    problem.context = options_.context;
    ops_->plan(problem);
  }
  tell_if_missed(ops_->linear_planner());
  tell_if_missed(ops_->attention_planner());
  plan_.available = device_->available_memory();
  plan_.add("packed weights", weights_->packed_bytes());
  plan_.add("weights read in place", weights_->in_place_bytes());
  plan_.add(fmt::format("KV cache of {} positions", options_.kv_tokens),
            model_->state_layout().bytes_per_token(*options_.kv_type) * static_cast<size_t>(options_.kv_tokens));
  if (const StateOptions state = state_options(); state.slots > 0) {
    plan_.add(fmt::format("recurrent state of {} slots", state.slots),
              model_->state_layout().bytes_per_slot() * static_cast<size_t>(state.slots));
  }
  plan_.add("activations", Activations::bytes(activation_sizes()) + BatchTables::bytes(table_sizes()));
  plan_.add("workspace", ops_->workspace_bytes());
  if (!device_->is_host()) plan_.add("draws", DrawTables::bytes(options_.logit_rows));
  log().info("memory plan: {}", plan_.to_string());
}

std::vector<AttentionProblem> Runner::attention_problems() const {
  auto problems = model_->attention_problems();
  for (size_t layer = 0; layer < problems.size(); ++layer) {
    problems[layer].kv = *options_.kv_type;
    problems[layer].precision = ops_->precision();
    problems[layer].block_size = options_.block_size;
    problems[layer].calibrated = !phi_[layer].empty();
  }
  return problems;
}

}  // namespace millrace
