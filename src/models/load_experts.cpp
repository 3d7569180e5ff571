// Finds the tensors of mixtures. Exporters disagree: one tensor for each expert or one for all, gate and up together or
// apart, under several prefixes.
#include <fmt/format.h>

#include "models/experts.h"

namespace millrace {
namespace {

constexpr const char* kPrefixes[] = {"mlp.", "block_sparse_moe.", "feed_forward.", "mixer.",
                                     ""};  // of a layer's mixture in Hugging Face files

// The first of the names that the file has, or the first of all.
TensorName first_of(const Weights::Layer& at, std::string_view gguf, std::initializer_list<const char*> hf) {
  for (const char* name : hf) {
    if (at.has({std::string(gguf), name})) return {std::string(gguf), name};
  }
  return {std::string(gguf), *hf.begin()};
}

TensorName router_name(const Weights::Layer& at) {
  return first_of(
      at, "ffn_gate_inp.weight",
      {"mlp.gate.weight", "mlp.router.weight", "block_sparse_moe.gate.weight", "block_sparse_moe.router.layer.weight",
       "block_sparse_moe.router.weight", "feed_forward.gate.weight", "mixer.gate.weight", "router.proj.weight"});
}

TensorName choice_bias_name(const Weights::Layer& at) {
  return first_of(
      at, "exp_probs_b.bias",
      {"mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias", "mlp.moe_statics.e_score_correction_bias",
       "mlp.gate.moe_statics.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias",
       "feed_forward.expert_bias", "mixer.gate.e_score_correction_bias"});
}

using Views = std::vector<std::vector<WeightView>>;  // by expert

// Adds to each expert its slice of a tensor [experts, rows, cols].
void add_slices(Weights::Layer& at, const TensorName& name, int64_t experts, int64_t rows, int64_t cols, Views& to) {
  const auto slices = at.slices(name, {experts, rows, cols});
  to.resize(slices.size());
  for (size_t i = 0; i < slices.size(); ++i) to[i].push_back(slices[i]);
}

// Adds to each expert its own tensor [rows, cols]; the names have a {} for the expert's number.
void add_each(Weights::Layer& at, const TensorName& name, int64_t experts, int64_t rows, int64_t cols, Views& to) {
  to.resize(static_cast<size_t>(experts));
  for (int64_t i = 0; i < experts; ++i) {
    const auto of_expert = [i](const std::string& pattern) { return fmt::format(fmt::runtime(pattern), i); };
    const TensorName own{of_expert(name.gguf), of_expert(name.hf)};
    if (const TensorInfo* matrix = at.find(own))  // slices() would take one more dimension
      static_cast<void>(at.weights().source().tensor(matrix->name, {rows, cols}));
    to[static_cast<size_t>(i)].push_back(at.slices(own, {1, rows, cols})[0]);
  }
}

struct Matrices {
  Views gate_up, down;
};

Matrices find_gguf(Weights::Layer& at, int64_t experts, int64_t width, int64_t hidden) {
  Matrices found;
  if (at.has({"ffn_gate.0.weight", ""})) {  // the first converters wrote one tensor for each expert
    add_each(at, {"ffn_gate.{}.weight", ""}, experts, width, hidden, found.gate_up);
    add_each(at, {"ffn_up.{}.weight", ""}, experts, width, hidden, found.gate_up);
    add_each(at, {"ffn_down.{}.weight", ""}, experts, hidden, width, found.down);
    return found;
  }
  if (at.has({"ffn_gate_up_exps.weight", ""})) {
    add_slices(at, {"ffn_gate_up_exps.weight", ""}, experts, 2 * width, hidden, found.gate_up);
  } else {
    add_slices(at, {"ffn_gate_exps.weight", ""}, experts, width, hidden, found.gate_up);
    add_slices(at, {"ffn_up_exps.weight", ""}, experts, width, hidden, found.gate_up);
  }
  add_slices(at, {"ffn_down_exps.weight", ""}, experts, hidden, width, found.down);
  return found;
}

Matrices find_hf(Weights::Layer& at, int64_t experts, int64_t width, int64_t hidden) {
  Matrices found;
  struct Stacked {
    const char *gate_up, *down;
  };
  for (const std::string prefix : kPrefixes) {
    for (const Stacked& names : {Stacked{"experts.gate_up_proj", "experts.down_proj"},
                                 Stacked{"input_linear.weight", "output_linear.weight"}}) {
      if (!at.has({"", prefix + names.gate_up})) continue;
      add_slices(at, {"", prefix + names.gate_up}, experts, 2 * width, hidden, found.gate_up);
      add_slices(at, {"", prefix + names.down}, experts, hidden, width, found.down);
      return found;
    }
    if (at.has({"", prefix + "experts.gate_proj"})) {  // gpt-oss, as its folder is presented
      add_slices(at, {"", prefix + "experts.gate_proj"}, experts, width, hidden, found.gate_up);
      add_slices(at, {"", prefix + "experts.up_proj"}, experts, width, hidden, found.gate_up);
      add_slices(at, {"", prefix + "experts.down_proj"}, experts, hidden, width, found.down);
      return found;
    }
    if (!at.has({"", prefix + "experts.0.w1.weight"})) continue;
    add_each(at, {"", prefix + "experts.{}.w1.weight"}, experts, width, hidden, found.gate_up);
    add_each(at, {"", prefix + "experts.{}.w3.weight"}, experts, width, hidden, found.gate_up);
    add_each(at, {"", prefix + "experts.{}.w2.weight"}, experts, hidden, width, found.down);
    return found;
  }
  add_each(at, {"", "mlp.experts.{}.gate_proj.weight"}, experts, width, hidden, found.gate_up);
  add_each(at, {"", "mlp.experts.{}.up_proj.weight"}, experts, width, hidden, found.gate_up);
  add_each(at, {"", "mlp.experts.{}.down_proj.weight"}, experts, hidden, width, found.down);
  return found;
}

// The rows [first, first + count) of a matrix.
WeightView rows_from(const WeightView& matrix, int64_t first, int64_t count) {
  return {matrix.dtype, count, matrix.cols, matrix.row(first)};
}

// The only matrix of each expert.
std::vector<WeightView> first_views(const Views& views) {
  std::vector<WeightView> firsts;
  for (const auto& of_expert : views) firsts.push_back(of_expert.front());
  return firsts;
}

// GGUF files have the experts of a layer stacked, and gate and up apart.
void declare_stacked(Weights::Layer& at, const Matrices& found, int64_t width, int64_t hidden) {
  const auto experts = std::ssize(found.down);
  std::vector<WeightView> gates, ups, downs;
  for (size_t i = 0; i < found.down.size(); ++i) {
    const auto& gate_up = found.gate_up[i];
    gates.push_back(rows_from(gate_up[0], 0, width));
    ups.push_back(gate_up.size() == 2 ? gate_up[1] : rows_from(gate_up[0], width, width));
    downs.push_back(found.down[i][0]);
  }
  at.declare("ffn_gate_exps.weight", {experts, width, hidden}, std::move(gates));
  at.declare("ffn_up_exps.weight", {experts, width, hidden}, std::move(ups));
  at.declare("ffn_down_exps.weight", {experts, hidden, width}, std::move(downs));
}

// The rows of a matrix; 0 if the file lacks it.
int64_t rows_of(const Weights::Layer& at, const TensorName& name) {
  const TensorInfo* tensor = at.find(name);
  return tensor != nullptr && tensor->shape.size() == 2 ? tensor->shape[0] : 0;
}

struct SharedNames {
  TensorName gate, up, down;
  TensorName weight = {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"};  // [1, hidden]
};
SharedNames shared_names(const Weights::Layer& at) {
  return {
      first_of(at, "ffn_gate_shexp.weight",
               {"mlp.shared_experts.gate_proj.weight", "mlp.shared_expert.gate_proj.weight"}),
      first_of(at, "ffn_up_shexp.weight", {"mlp.shared_experts.up_proj.weight", "mlp.shared_expert.up_proj.weight"}),
      first_of(at, "ffn_down_shexp.weight",
               {"mlp.shared_experts.down_proj.weight", "mlp.shared_expert.down_proj.weight"})};
}

// How many experts of the routed ones' width and format the shared expert equals; 0: it stays a feed-forward, as one
// with a bias does.
int64_t joinable_experts(const Weights::Layer& at, const DecoderConfig& c, const Matrices& routed) {
  const SharedNames names = shared_names(at);
  const int64_t width = rows_of(at, names.up), count = width / c.expert_width;
  if (!at.weights().joins_shared_experts() || count == 0 || width % c.expert_width != 0) return 0;
  if (c.experts + count > RouterOp::kMostGroups) return 0;
  const DType format = routed.down[0][0].dtype;
  for (const TensorName& name : {names.gate, names.up, names.down}) {
    const TensorInfo* tensor = at.find(name);
    if (tensor == nullptr || tensor->dtype != format || routed.gate_up[0][0].dtype != format) return 0;
    if (at.has({bias_name(name.gguf), bias_name(name.hf)})) return 0;
    // Columns of `down` become matrices of their own. A source computes whole rows only.
    const WeightSource& source = at.weights().source();
    if (count == 1) continue;
    if (is_quantized(format) || source.fetched_bytes(source.tensor(tensor->name, tensor->shape)) > 0) return 0;
  }
  return count;
}

// Adds the shared expert's rows of gate and up, and its columns of down, behind the routed experts.
void join_shared(Weights::Layer& at, const DecoderConfig& c, int64_t count, Matrices& to) {
  const SharedNames names = shared_names(at);
  const int64_t width = c.expert_width;
  const WeightView gate = at.slices(names.gate, {1, count * width, c.hidden})[0];
  const WeightView up = at.slices(names.up, {1, count * width, c.hidden})[0];
  const WeightView down = at.slices(names.down, {1, c.hidden, count * width})[0];
  for (int64_t i = 0; i < count; ++i) {
    to.gate_up.push_back({rows_from(gate, i * width, width), rows_from(up, i * width, width)});
    auto& columns = to.down.emplace_back();
    if (count == 1) columns.push_back(down);
    for (int64_t row = 0; row < c.hidden && count > 1; ++row)
      columns.push_back({down.dtype, 1, width, down.row(row) + row_bytes(down.dtype, i * width)});
  }
}

// Biases of all experts, [experts][2 width] and [experts][hidden]; null: none.
struct Biases {
  const Vector *gate_up = nullptr, *down = nullptr;
};

Biases find_biases(Weights::Layer& at, int64_t experts, int64_t width, int64_t hidden) {
  const TensorName gate{"ffn_gate_exps.bias", "mlp.experts.gate_proj_bias"};
  const TensorName up{"ffn_up_exps.bias", "mlp.experts.up_proj_bias"};
  const TensorName down{"ffn_down_exps.bias", "mlp.experts.down_proj_bias"};
  if (!at.has(gate)) return {};
  const auto gates = at.slices(gate, {experts, width}), ups = at.slices(up, {experts, width});
  std::vector<WeightView> both;
  for (size_t i = 0; i < gates.size(); ++i) both.insert(both.end(), {gates[i], ups[i]});
  return {at.weights().stacked_vector(both), at.weights().stacked_vector(at.slices(down, {experts, hidden}))};
}

}  // namespace

bool has_experts(const Weights::Layer& at) { return at.has(router_name(at)); }

namespace {

Matrices find_matrices(Weights::Layer& at, const DecoderConfig& c) {
  if (is_gguf(at.weights().source())) return find_gguf(at, c.experts, c.expert_width, c.hidden);
  Matrices found = find_hf(at, c.experts, c.expert_width, c.hidden);
  declare_stacked(at, found, c.expert_width, c.hidden);
  return found;
}

// The matrices of an expert as adapters name them, without what lies between the layer and its experts: all exporters
// agree then (engine/adapter_experts.h).
LinearPart gate_part(int64_t rows) { return {{"ffn_gate_exps.weight", "experts.gate_proj"}, rows}; }
LinearPart up_part(int64_t rows) { return {{"ffn_up_exps.weight", "experts.up_proj"}, rows}; }
LinearPart down_part(int64_t rows) { return {{"ffn_down_exps.weight", "experts.down_proj"}, rows}; }

void add_matrices(Weights::Layer& at, const DecoderConfig& c, Matrices found, Grouped gate_up, Experts& experts) {
  const Biases biases = find_biases(at, c.experts, c.expert_width, c.hidden);
  gate_up.per_row = c.experts_per_row + experts.settings.shared;
  gate_up.gated = true;
  gate_up.bias = biases.gate_up;
  const Grouped down{.per_row = gate_up.per_row, .sum = true, .bias = biases.down};
  const int64_t width = c.expert_width;
  LinearPart whole{{"ffn_gate_up_exps.weight", "experts.gate_up_proj"}, 2 * width};
  LinearPart down_alone = down_part(c.hidden);
  if (gate_up.activation == Activation::ClampedSwiglu) {  // gpt-oss: [experts, k, n], and gate and up alternate
    whole.stored_by = {width, 2};
    whole.transposed = down_alone.transposed = true;
  }
  experts.gate_up = at.experts(std::move(gate_up), std::move(found.gate_up), {gate_part(width), up_part(width)}, whole);
  experts.down = at.experts(down, std::move(found.down), {down_alone});
}

const Vector* load_choice_bias(Weights::Layer& at, int64_t experts) {
  const TensorName name = choice_bias_name(at);
  const TensorInfo* found = at.find(name);
  const bool is_row =
      found != nullptr && found->shape.size() == 2 && found->name.find("moe_statics") != std::string::npos;
  if (!is_row) return at.optional_vector(name, experts);
  const std::vector<WeightView> row = at.slices({"", name.hf}, {1, experts});  // as ERNIE 4.5 stores it
  at.declare(name.gguf, {experts}, row);
  return at.weights().stacked_vector(row);
}

Experts load_router(Weights::Layer& at, const DecoderConfig& c, const RouterSettings& settings) {
  Experts experts;
  experts.settings = settings;
  experts.settings.per_row = static_cast<int>(c.experts_per_row);
  std::vector<LinearPart> parts{{router_name(at), c.experts}};
  if (settings.gates_shared) parts.push_back({shared_names(at).weight, 1});
  experts.router = at.linear(parts, c.hidden);
  experts.choice_bias = load_choice_bias(at, c.experts);
  return experts;
}

}  // namespace

void load_expert_matrices(Weights::Layer& at, const DecoderConfig& c, Activation activation, Experts& experts,
                          SwigluClamp clamp) {
  add_matrices(at, c, find_matrices(at, c), {.activation = activation, .clamp = clamp}, experts);
}

Experts load_experts(Weights::Layer& at, const DecoderConfig& c, RouterSettings settings, Activation activation,
                     SwigluClamp clamp) {
  // The router's shape is checked first: its error names a wrong number of experts.
  if (const TensorInfo* router = at.find(router_name(at)))
    static_cast<void>(at.weights().source().tensor(router->name, {c.experts, c.hidden}));
  Matrices found = find_matrices(at, c);
  if (const int64_t joined = joinable_experts(at, c, found); joined > 0) {
    join_shared(at, c, joined, found);
    settings.shared = static_cast<int>(joined);
    settings.gates_shared = at.has(shared_names(at).weight);
  }
  Experts experts = load_router(at, c, settings);
  add_matrices(at, c, std::move(found), {.activation = activation, .clamp = clamp}, experts);
  return experts;
}

Experts load_ungated_experts(Weights::Layer& at, const DecoderConfig& c, RouterSettings settings, int64_t shared,
                             int64_t latent) {
  Experts experts = load_router(at, c, settings);
  const int64_t hidden = latent > 0 ? latent : c.hidden;
  if (latent > 0) {
    experts.latent_in = at.linear({{{"ffn_latent_down.weight", "mixer.fc1_latent_proj.weight"}, latent}}, c.hidden);
    experts.latent_out = at.linear({{{"ffn_latent_up.weight", "mixer.fc2_latent_proj.weight"}, c.hidden}}, latent);
  }
  Views up, down;
  if (is_gguf(at.weights().source()) || at.has({"", "mixer.experts.up_proj"})) {
    add_slices(at, {"ffn_up_exps.weight", "mixer.experts.up_proj"}, c.experts, c.expert_width, hidden, up);
    add_slices(at, {"ffn_down_exps.weight", "mixer.experts.down_proj"}, c.experts, hidden, c.expert_width, down);
  } else {
    add_each(at, {"", "mixer.experts.{}.up_proj.weight"}, c.experts, c.expert_width, hidden, up);
    add_each(at, {"", "mixer.experts.{}.down_proj.weight"}, c.experts, hidden, c.expert_width, down);
    at.declare("ffn_up_exps.weight", {c.experts, c.expert_width, hidden}, first_views(up));
    at.declare("ffn_down_exps.weight", {c.experts, hidden, c.expert_width}, first_views(down));
  }
  experts.gate_up = at.experts({.per_row = c.experts_per_row}, std::move(up), {up_part(c.expert_width)});
  experts.down = at.experts({.per_row = c.experts_per_row, .sum = true}, std::move(down), {down_part(hidden)});
  if (shared > 0) {
    experts.shared = {
        at.linear({{{"ffn_up_shexp.weight", "mixer.shared_experts.up_proj.weight"}, shared}}, c.hidden),
        at.linear({{{"ffn_down_shexp.weight", "mixer.shared_experts.down_proj.weight"}, c.hidden}}, shared)};
  }
  return experts;
}

void load_shared_expert(Weights::Layer& at, const DecoderConfig& c, Activation activation, bool required,
                        Experts& experts) {
  if (experts.settings.shared > 0) return;  // joined with the others
  const SharedNames names = shared_names(at);
  const TensorName both{"", "shared_mlp.input_linear.weight"};  // gate and up in one
  const int64_t rows = rows_of(at, both);
  int64_t width = rows_of(at, names.up);
  if (required && width == 0 && rows == 0) width = c.expert_width;  // the lookup below names the missing tensor
  if (width > 0) {
    experts.shared = {at.gate_up({{names.gate, width}, {names.up, width}}, c.hidden, activation),
                      at.linear({{names.down, c.hidden}}, width)};
  } else if (rows > 0 && rows % 2 == 0) {
    experts.shared = {at.gate_up({{both, rows}}, c.hidden, activation),
                      at.linear({{{"ffn_down_shexp.weight", "shared_mlp.output_linear.weight"}, c.hidden}}, rows / 2)};
    const WeightView all = at.slices(both, {1, rows, c.hidden})[0];
    at.declare("ffn_gate_shexp.weight", {rows / 2, c.hidden}, {rows_from(all, 0, rows / 2)});
    at.declare("ffn_up_shexp.weight", {rows / 2, c.hidden}, {rows_from(all, rows / 2, rows / 2)});
  }
  if (experts.shared.gate_up != nullptr && at.has(names.weight))
    experts.shared_gate = at.linear({{names.weight, 1}}, c.hidden);
}

void require_shared_gate(const Weights::Layer& at) { at.require(shared_names(at).weight); }

void require_choice_bias(const Weights::Layer& at, const Experts& experts, const std::string& hf) {
  if (experts.choice_bias == nullptr && !is_gguf(at.weights().source())) at.require({"", hf});
}

}  // namespace millrace
