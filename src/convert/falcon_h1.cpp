// Falcon-H1 as a GGUF file: the factors of its config are multiplied into the weights.
#include "convert/architecture_functions.h"
#include "convert/key_checks.h"
#include "convert/recurrent.h"

namespace millrace {
namespace {

float factor(const ConvertedModel& model, std::string_view key) {
  return static_cast<float>(model.keys().optional_number({.hf = key}).value_or(1));
}

std::vector<double> factor_list(const ConvertedModel& model, std::string_view key, size_t count) {
  return model.keys().optional_array<double>({.hf = key}).value_or(std::vector<double>(count, 1.0));
}

using Factors = std::array<float, 2>;

Factors factors_of(const ConvertedModel& model, std::string_view name) {
  const auto of = [&](std::string_view key) { return factor(model, key); };
  const auto feed = factor_list(model, "mlp_multipliers", 2);
  if (name.ends_with(".ffn_gate.weight")) return {static_cast<float>(feed[0]), 1};
  if (name.ends_with(".ffn_down.weight")) return {static_cast<float>(feed[1]), 1};
  if (name.ends_with(".attn_k.weight")) return {of("key_multiplier"), of("attention_in_multiplier")};
  if (name.ends_with(".attn_q.weight") || name.ends_with(".attn_v.weight")) return {of("attention_in_multiplier"), 1};
  if (name.ends_with(".attn_output.weight")) return {of("attention_out_multiplier"), 1};
  if (name.ends_with(".ssm_out.weight")) return {of("ssm_out_multiplier"), 1};
  if (name == "output.weight") return {of("lm_head_multiplier"), 1};
  if (name == "token_embd.weight") return {of("embedding_multiplier"), 1};
  return {1, 1};
}

// The projection's rows z, x, B, C and dt have factors of their own.
void fold_projection(const ConvertedModel& model, FileTensor& tensor) {
  const Mamba2Shape mixer = mixer_of(model, mixer_groups(model));
  const int64_t inner = mixer.scan.inner(), group = mixer.scan.group_cols();
  const auto factors = factor_list(model, "ssm_multipliers", 5);
  const WeightView all = tensor.sources.front();
  const int64_t rows[] = {inner, inner, group, group, mixer.scan.heads};
  tensor.parts.clear();
  int64_t first = 0;
  for (size_t i = 0; i < std::size(rows); ++i) {
    const Factors both{static_cast<float>(factors[i]), factor(model, "ssm_in_multiplier")};
    tensor.parts.push_back({{{all.dtype, rows[i], all.cols, all.row(first)}}, {.factors = both}});
    first += rows[i];
  }
}

}  // namespace

void falcon_h1_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  const bool norms = k.model.has("blk.0.ssm_norm.weight");
  k.require(!norms || !k.flag_of("mamba_norm_before_gate", true), "mamba_norm_before_gate");
  for (const DeclaredTensor& tensor : k.model.tensors) {
    const bool known = tensor.gguf.ends_with("ssm_dt.bias") || tensor.gguf.ends_with("ssm_conv1d.bias");
    k.require(!tensor.gguf.ends_with(".bias") || known, "biases (" + tensor.gguf + ")");
  }
  add_mixer(k, mixer_of(k.model, mixer_groups(k.model)));
}

void falcon_h1_tensor(const ConvertedModel& model, FileTensor tensor, std::vector<FileTensor>& out) {
  if (tensor.name == "token_embd.weight" && !model.has("output.weight")) {  // the two have different factors
    FileTensor head = tensor;
    head.name = "output.weight";
    head.parts.front().change.factors = factors_of(model, head.name);
    out.push_back(std::move(head));
  }
  if (tensor.name.ends_with(".ssm_in.weight")) fold_projection(model, tensor);
  if (const Factors factors = factors_of(model, tensor.name); factors != Factors{1, 1})
    tensor.parts.front().change.factors = factors;
  // llama.cpp's converter leaves the suffix of this name out.
  constexpr std::string_view kFeedNorm = "ffn_norm.weight";
  if (tensor.name.ends_with(kFeedNorm)) tensor.name.resize(tensor.name.size() - std::string_view(".weight").size());
  recurrent_tensor(model, std::move(tensor), out);
}

}  // namespace millrace
