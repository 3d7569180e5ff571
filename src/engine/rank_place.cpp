// A model that the device cannot hold: some weights stay in host memory, and the CPU computes their layers. Experts
// that main memory cannot hold stay in the mapped file.
#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "engine/rank.h"
#include "hardware/link_rate.h"
#include "hardware/storage_rate.h"
#include "hardware/this_machine.h"

namespace millrace {
namespace {

constexpr int64_t kUsualContext = 4096;  // if none was asked for: a longer one would move more weights to the host
constexpr int kAttempts = 6;             // buffers and workspace depend a little on the placement

}  // namespace

// Bytes that the model may take of the device's memory.
int64_t Rank::device_memory() const {
  const int64_t available = device_->available_memory();
  const int64_t most = may_use_host() ? options_.gpu_memory : options_.cpu_memory;
  return most > 0 ? std::min(available, most) : available;
}

int64_t Rank::host_memory() const {
  const int64_t available = host_device_->available_memory();
  return options_.cpu_memory > 0 ? std::min(available, options_.cpu_memory) : available;
}

bool Rank::may_use_host() const { return !device_->is_host() || options_.cpu_as_card; }

void Rank::open_host() {
  const IsaSet isa = device_->is_host() ? device_->hardware().isa : allowed_isa(options_.isa);
  host_device_ = host_device(this_machine(options_.threads, options_.measure, isa));
  const Hardware& hardware = host_device_->hardware();
  link_ = measure_link(*device_);
  host_plans_ = PlanCache::load(PlanCache::file_for(hardware.id, hardware.threads));
}

PlacementRates Rank::placement_rates() const {
  const Ceilings &device = device_->hardware().ceilings, &host = host_device_->hardware().ceilings;
  PlacementRates rates{
      .device_gbs = device.read_gbs, .host_gbs = host.read_gbs, .expert_gbs = host.read_gbs, .link = link_};
  double read_us = 0, bytes = 0, call_us = 0;  // of all kinds of products together
  int kinds = 0;
  for (const ProductCost& cost : costs_) {
    const double each = double(cost.of.n) * double(row_bytes(cost.of.format, cost.of.k));
    if (cost.gbs <= 0) continue;
    bytes += each;
    read_us += each / cost.gbs;
    call_us += cost.call_us;
    ++kinds;
  }
  if (kinds == 0) return rates;
  rates.expert_gbs = bytes / read_us;
  rates.call_us = 2 * call_us / kinds;  // gate_up and down
  return rates;
}

// A first placement declares the experts as the CPU stores them; the times of their products decide about the final
// one. The CPU as a card stands for tests, which must not depend on the machine.
void Rank::measure_host(const WeightSource& source, const std::vector<Weights::Unit>& units, int64_t missing) {
  if (device_->is_host()) return;
  const auto has_experts = [](const Weights::Unit& unit) { return unit.experts; };
  if (std::none_of(units.begin(), units.end(), has_experts)) return;
  host_units_ = choose_host_units(units, static_cast<size_t>(missing), placement_rates(), options_.split_experts);
  plan(source);
  costs_ = measure_products(*host_ops_);
}

// kWhatFits becomes up to an eighth of the device's memory.
int64_t Rank::modest_kv_tokens(int64_t wanted) const {
  if (wanted != LoadOptions::kWhatFits) return wanted;
  const auto per_token = std::max<int64_t>(1, static_cast<int64_t>(layout_.bytes_per_token(*options_.kv_type)));
  return std::min(device_memory() / 8 / per_token, options_.context * options_.sequences);
}

// Moves weights to the host until the plan fits the device, or until nothing is left to move.
void Rank::place_on_host(const WeightSource& source, int64_t wanted_context, int64_t wanted_kv_tokens) {
  fits_device_ = false;  // shared experts become units of their own
  options_.context = wanted_context;
  options_.kv_tokens = wanted_kv_tokens;
  plan(source);
  const std::vector<Weights::Unit> units = weights_->units();
  const auto add = [](int64_t sum, const Weights::Unit& unit) { return sum + static_cast<int64_t>(unit.bytes); };
  const int64_t movable = std::accumulate(units.begin(), units.end(), int64_t{0}, add);
  if (plan_.total() - movable > plan_.available) return;  // state and buffers alone do not fit: load() refuses
  open_host();
  const auto& config = model_->config();
  options_.context = wanted_context > 0 ? wanted_context : std::min(config.context, kUsualContext);
  wanted_kv_tokens = modest_kv_tokens(wanted_kv_tokens);
  const int64_t missing = plan_.total() - plan_.available;
  options_.kv_tokens = wanted_kv_tokens;
  measure_host(source, units, missing);
  const auto move = [&](bool stream) {
    stream_experts_ = stream;
    int64_t to_free = 0;
    for (int attempt = 0; attempt < kAttempts && (attempt == 0 || plan_.total() > plan_.available); ++attempt) {
      to_free += attempt == 0 ? missing : plan_.total() - plan_.available;
      host_units_ = choose_host_units(units, static_cast<size_t>(to_free), placement_rates(), options_.split_experts);
      options_.kv_tokens = wanted_kv_tokens;
      plan(source);
    }
    describe_host(units);
  };
  const bool may_stream = !options_.batch_invariant;
  if (may_stream) move(true);
  // Copies for the GPU need its memory, and host memory for a second time.
  const bool fits = plan_.total() <= plan_.available && share_.memory.total() <= share_.memory.available;
  if (!may_stream || !fits || share_.stream_rows == 0) move(false);
  map_host_experts(source);
  log().info("{}", share_.to_string());
  log().info("memory plan of the host: {}", share_.memory.to_string());
}

void Rank::describe_host(const std::vector<Weights::Unit>& units) {
  share_ = describe_share(units, host_units_, placement_rates());
  share_.bytes = static_cast<int64_t>(weights_->host_bytes());
  share_.stream_rows = ops_->stream_rows();
  share_.memory.available = host_memory();
  share_.memory.add("weights", weights_->host_bytes());
  if (stream_experts_) share_.memory.add("weights in the GPU's layout", weights_->streamed_bytes());
  share_.memory.add("rows between the devices", host_side_->bytes());
  share_.memory.add("workspace", host_ops_->workspace_bytes());
}

void Rank::map_host_experts(const WeightSource& source) {
  const std::vector<Weights::Unit> units = weights_->units();
  const auto experts = static_cast<int64_t>(weights_->host_expert_bytes());
  experts_in_ = place_experts(share_.memory.total(), experts, share_.memory.available);
  if (experts_in_ == ExpertsIn::Memory) return;
  plan(source);
  describe_host(units);
  describe_mapped(source, share_.memory);
  share_.bytes += mapped_.bytes;
}

void Rank::map_experts(const WeightSource& source, int64_t wanted_context, int64_t wanted_kv_tokens) {
  int64_t experts = 0;
  for (const Weights::Unit& unit : weights_->units()) experts += unit.experts ? static_cast<int64_t>(unit.bytes) : 0;
  experts_in_ = place_experts(plan_.total(), experts, plan_.available);
  if (experts_in_ == ExpertsIn::Memory) return;
  // A context that takes all memory beside the other weights would leave none for the experts' pages.
  options_.context = wanted_context > 0 ? wanted_context : std::min(model_->config().context, kUsualContext);
  options_.kv_tokens = modest_kv_tokens(wanted_kv_tokens);
  plan(source);
  describe_mapped(source, plan_);
}

void Rank::describe_mapped(const WeightSource& source, const MemoryPlan& plan) {
  const Weights::Unit experts = weights_->mapped_experts();
  mapped_ = {.bytes = static_cast<int64_t>(experts.bytes),
             .bytes_of_a_row = static_cast<int64_t>(experts.bytes_of_a_row),
             .room = plan.available - plan.total()};
  const auto files = source.files();
  const auto largest = std::max_element(files.begin(), files.end(), [](const MappedFile& a, const MappedFile& b) {
    return a.bytes().size() < b.bytes().size();
  });
  if (largest != files.end()) mapped_.storage_gbs = measure_storage_gbs(largest->path()).value_or(0);
}

}  // namespace millrace
