// Builds a rank from a file's config: options, plans, loading.
#include "engine/rank.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "dataflow/buckets.h"
#include "hardware/detect.h"
#include "models/draft_heads.h"

namespace millrace {
namespace {

// Steps of this size are bound by arithmetic. On a GPU twice as many rows are 1 % faster and need 1 GB more activations
// for an 8B model.
int64_t usual_rows(const Hardware& hardware) {
  constexpr int64_t kOnCpu = 512, kOnGpu = 4096, kOnLargeGpu = 8192, kLarge = int64_t{64} << 30;
  if (hardware.device == DeviceKind::Cpu) return kOnCpu;
  return hardware.memory_bytes >= kLarge ? kOnLargeGpu : kOnGpu;
}

// The format that holds most bytes of the weight matrices.
DType weight_format(const WeightSource& source) {
  std::map<DType, size_t> bytes;
  for (const auto& tensor : source.tensors()) {
    if (tensor.dtype && tensor.shape.size() > 1) bytes[*tensor.dtype] += tensor.bytes;
  }
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? DType::F32 : most->first;
}

// The type of activations that linear layers take: on a GPU the weights' own 16-bit format, bf16 for quantized weights,
// f32 for f32.
DType working_type(DType weights, const Device& device, bool exact) {
  if (device.is_host() || exact) return DType::F32;
  return is_quantized(weights) ? DType::BF16 : weights;
}

// On a CPU f32 weights use f32 arithmetic, in attention too: bf16 products would lose digits that the file keeps.
Precision precision_for(DType weights, const Device& device, bool exact) {
  return exact || (device.is_host() && weights == DType::F32) ? Precision::Exact : Precision::Fast;
}

void check_kv_type(DType kv, const StateLayout& layout) {
  if (!is_kv_dtype(kv, info(kv).block)) fail(ErrorKind::Usage, "--kv-type {}: one of {}", name(kv), kKvDtypeNames);
  for (const auto& shape : layout.paged()) {
    for (const int dim : {shape.key_dim, shape.value_dim}) {
      if (dim % info(kv).block != 0)
        fail(ErrorKind::Usage, "--kv-type {}: heads of size {} are not whole blocks; use f16", name(kv), dim);
    }
  }
}

}  // namespace

IsaSet allowed_isa(const std::string& level) {
  if (level.empty()) return detect_isa();
  // A level is available if the machine has any instruction set that the level below does not include.
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

Rank::Rank(const WeightSource& source, LoadOptions& options) : options_(options), origin_(source.origin()) {
  open(source);
  if (options_.gpu_memory > 0 && !may_use_host()) log().warn("--gpu-memory has no effect: the device is the CPU");
  const int64_t context = options_.context, kv_tokens = options_.kv_tokens;
  plan(source);
  if (plan_.total() <= plan_.available) return;
  may_use_host() ? place_on_host(source, context, kv_tokens) : map_experts(source, context, kv_tokens);
}

// Plans for the current placement of the weights.
void Rank::plan(const WeightSource& source) {
  weights_.reset();  // they refer to the ops
  make_ops(source);
  layout_ = {};
  activations_ = {};
  plan_ = {};
  weights_ =
      std::make_unique<Weights>(source, *ops_, HostUnits{host_ops_.get(), host_units_, stream_experts_}, experts_in_);
  if (options_.adapters) weights_->expect_adapters();
  const bool joins = options_.join_shared_experts.value_or(!device_->is_host() && fits_device_);
  if (joins && !options_.adapters) weights_->join_shared_experts();
  model_ = make_model(source);
  weights_->check_all_used();
  const DType adapter_format =
      ops_->precision() == Precision::Exact || ops_->working() != DType::F32 ? ops_->working() : DType::BF16;
  adapters_ = std::make_unique<Adapters>(*device_, options_.adapters, weights_->sites().size(), adapter_format);
  ops_->use_adapters(adapters_->table());
  given_adapters_.clear();
  for (const auto& [name, path] : options_.adapter_files) given_adapters_.emplace_back(name, read_adapter(path));
  if (options_.adapters && !more_adapters_) adapters_->expect_only(given_adapters_);

  const DType fast_kv = ops_->working() == DType::F32 ? DType::F16 : ops_->working();
  // The state of a model that pools holds one step's keys and values, so f32 costs little memory.
  const bool in_f32 = options_.exact || (model_->pools() && ops_->precision() == Precision::Exact);
  options_.kv_type = options_.kv_type.value_or(in_f32 ? DType::F32 : fast_kv);
  check_kv_type(*options_.kv_type, layout_);
  if (!model_->is_draft_head()) read_calibration(source);
  decide_slots();
  decide_context();
  if (model_->pools()) options_.rows = std::max(options_.rows, options_.context);  // a sequence is one slice
  plan_steps();
  plan_memory();
}

std::unique_ptr<Model> Rank::make_model(const WeightSource& source) {
  if (options_.drafts_for.model != nullptr)
    return make_draft_head(source, *weights_, layout_, *options_.drafts_for.model);
  const Architecture& architecture =
      options_.architecture != nullptr ? *options_.architecture : find_architecture(source);
  auto model = architecture.make(source, *weights_, layout_);
  if (options_.heads == nullptr) return model;
  if (!model->gives_features()) refuse(source, "draft heads for architecture '" + source.config().architecture() + "'");
  model->taps = head_taps(*options_.heads, model->config().layers);
  return model;
}

size_t Rank::weight_bytes() const { return weights_->packed_bytes() + weights_->in_place_bytes(); }

void Rank::open(const WeightSource& source) {
  const IsaSet isa = allowed_isa(options_.isa);
  more_adapters_ = options_.adapters;
  options_.adapters |= !options_.adapter_files.empty();
  if (options_.pool != nullptr) options_.threads = options_.pool->size();  // plans are made for the threads that run
  device_ = open_device({options_.device, options_.threads, options_.measure, isa});
  const Hardware& hardware = device_->hardware();
  options_.threads = device_->is_host() ? hardware.threads : detect_cpu(options_.threads, isa).threads;
  if (options_.rows == 0) options_.rows = usual_rows(hardware);
  options_.rows = std::max(options_.rows, options_.places());
  options_.logit_rows = std::max(options_.logit_rows, options_.sequences);
  options_.device_draws |= !device_->is_host();
  if (options_.pool == nullptr) options_.pool = std::make_shared<ThreadPool>(options_.threads);
  plans_ =
      options_.plans != nullptr ? *options_.plans : PlanCache::load(PlanCache::file_for(hardware.id, hardware.threads));
}

void Rank::make_ops(const WeightSource& source) {
  const DType weights = weight_format(source);
  ops_ = std::make_unique<Ops>(device_->is_host() ? cpu_kernels() : cuda_kernels(), *device_, *options_.pool, &plans_,
                               OpsOptions{.precision = precision_for(weights, *device_, options_.exact),
                                          .forced = options_.forced,
                                          .working = working_type(weights, *device_, options_.exact),
                                          .batch_invariant = options_.batch_invariant});
  if (host_device_ == nullptr) return;
  make_host_ops(source);
  ops_->use_host(host_side_.get(), options_.stream_rows);
}

void Rank::make_host_ops(const WeightSource& source) {
  host_ops_ =
      std::make_unique<Ops>(cpu_kernels(), *host_device_, *options_.pool, &host_plans_,
                            OpsOptions{.precision = precision_for(weight_format(source), *host_device_, options_.exact),
                                       .batch_invariant = options_.batch_invariant,
                                       .is_host_side = true});
  host_ops_->use_costs(costs_);
  host_side_ = std::make_unique<HostSide>(*host_ops_, *device_, link_);
}

int64_t Rank::pages() const { return (options_.context + options_.block_size - 1) / options_.block_size; }

BatchTables::Sizes Rank::table_sizes() const {
  return {options_.rows, std::min(options_.rows, options_.places()), options_.logit_rows, pages()};
}

StateOptions Rank::state_options() const {
  return {*options_.kv_type, options_.block_size, static_cast<int32_t>(options_.kv_tokens),
          static_cast<int32_t>(slots_)};
}

// One slot per running sequence, and snapshots for the prefix tree: at least one per sequence, and as many as an eighth
// of the memory beside the weights holds, up to those of a few turns of each sequence. The number does not depend on
// the context.
void Rank::decide_slots() {
  if (layout_.slots().empty()) return;
  const auto weights = static_cast<int64_t>(weights_->packed_bytes() + weights_->in_place_bytes());
  const int64_t share = (device_->available_memory() - weights) / 8;
  const int64_t affordable = share / static_cast<int64_t>(std::max<size_t>(1, layout_.bytes_per_slot()));
  const int64_t least = options_.sequences, most = 8 + 4 * options_.sequences;
  slots_ = options_.sequences + std::clamp(affordable, least, most);
}

void Rank::load(const Progress& progress) {
  device_->use_on_this_thread();
  plan_.available = device_memory();
  plan_.check(origin_);
  if (uses_host()) {
    share_.memory.available = host_memory();
    share_.memory.check(origin_);
  }
  if (mapped_.any()) log().warn("{}", mapped_.to_string());
  weights_->pack(progress);
  state_ = std::make_unique<StateCache>(layout_, state_options(), device_->memory());
  if (options_.populate_kv && device_->is_host()) {
    const auto turn = options_.pool->turn();
    state_->populate(*options_.pool);
  }
  ops_->reserve_workspace();
  activations_.allocate(device_->memory());
  tables_ = std::make_unique<BatchTables>(table_sizes(), options_.block_size, *device_);
  place_calibration();
  adapters_->allocate();
  for (const auto& [name, packed] : std::exchange(given_adapters_, {})) adapters_->place(name, packed);
}

size_t Rank::adapter_bytes() const {
  size_t bytes = 0;
  for (const auto& [name, packed] : given_adapters_) bytes += packed.bytes.size();
  return bytes;
}

void Rank::decide_context() {
  const auto& config = model_->config();
  // Recurrent layers have no longest position, so a hybrid may run past its training; its attention layers may lose
  // accuracy there.
  const bool recurrent = !layout_.slots().empty();
  const bool may_be_longer = (options_.past_training || recurrent) && !config.learned_positions;
  if (options_.context_is_most && !may_be_longer) options_.context = std::min(options_.context, config.context);
  if (options_.context > config.context) {
    const std::string problem =
        fmt::format("--ctx {}: the model was trained for {} positions", options_.context, config.context);
    if (!may_be_longer) fail(ErrorKind::Usage, "{}", problem);
    if (!options_.past_training) log().warn("{}", problem);
  }
  const auto slots = static_cast<size_t>(slots_) * layout_.bytes_per_slot();
  const auto weights =
      static_cast<int64_t>(weights_->packed_bytes() + weights_->in_place_bytes() + adapter_bytes() + slots);
  const auto per_token = static_cast<int64_t>(layout_.bytes_per_token(*options_.kv_type));
  const int64_t room = (device_memory() - weights) * 3 / 4 / std::max<int64_t>(1, per_token);
  if (options_.context == 0) {
    const int64_t sharers = options_.kv_tokens == 0 ? options_.sequences : 1;
    options_.context = std::clamp<int64_t>(room / sharers, std::min<int64_t>(256, config.context), config.context);
    if (options_.context < config.context) {
      log().info("context limited to {} of the model's {} positions by available memory", options_.context,
                 config.context);
    }
  }
  // Each sequence takes whole pages, and the longest sequence must fit.
  const int64_t one = pages() * options_.block_size;
  if (options_.kv_tokens == LoadOptions::kWhatFits) options_.kv_tokens = std::min(room, one * options_.sequences);
  options_.kv_tokens = options_.kv_tokens == 0 ? one * options_.sequences : std::max(one, options_.kv_tokens);
  if (options_.kv_tokens > (int64_t(1) << 31) - 1) {
    fail(ErrorKind::Usage,
         "a KV cache of {} positions is too large; give a smaller --ctx or --kv-tokens, or fewer sequences",
         options_.kv_tokens);
  }
}

bool Rank::can_record(int64_t rows) const {
  return !device_->is_host() && (ops_->stream_rows() == 0 || bucket_rows(rows) < ops_->stream_rows());
}

Pass Rank::forward(const PlacedBatch& batch) {
  Pass pass(*ops_, activations_, *state_, model_->config(), batch);
  pass.scores = &knowledge_;
  model_->forward(pass);
  ops_->finish_pass();
  return pass;
}

}  // namespace millrace
