// Qwen3-Next and Qwen 3.5 as GGUF files: gated delta nets.
#include "models/delta_net.h"

#include "convert/architecture_functions.h"
#include "convert/key_checks.h"

namespace millrace {
namespace {

DeltaNet net_of(const ConvertedModel& model) {
  return read_delta_net(model.source,
                        {.shape = {.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128}, .taps = 4});
}

void add_net(ArchitectureKeys& k) {
  const DecoderConfig& c = k.model.config;
  const DeltaNet net = net_of(k.model);
  require_activation(k, Activation::Silu);
  k.count("ssm.conv_kernel", net.taps);
  k.count("ssm.state_size", net.shape.key_dim);
  k.count("ssm.group_count", net.shape.key_heads);
  k.count("ssm.time_step_rank", net.shape.value_heads);
  k.count("ssm.inner_size", net.shape.value_width());
  int64_t interval = 1;
  while (interval < c.layers && k.model.has_in_layer(interval - 1, "ssm_out.weight")) ++interval;
  for (int64_t i = 0; i < c.layers; ++i)
    k.require(k.model.has_in_layer(i, "ssm_out.weight") == ((i + 1) % interval != 0), "such a pattern of attention");
  k.count("full_attention_interval", interval);
  if (c.experts == 0) return;
  require_experts(k, 0);
  add_shared_width(k);
}

// Rows of each key head's value heads in the order of GGUF: the first value head of every key head, then the second.
std::vector<WeightView> tiled(const WeightView& rows, const DeltaRuleShape& s, int64_t size) {
  return in_layer_order({rows.dtype, s.value_heads * size, rows.cols, rows.data},
                        {s.key_heads, s.value_heads / s.key_heads});
}

// The same for columns: pieces of one head each, row after row.
std::vector<WeightView> tiled_columns(const WeightView& matrix, const DeltaRuleShape& s) {
  const int64_t ratio = s.value_heads / s.key_heads;
  const size_t bytes = row_bytes(matrix.dtype, s.value_dim);
  std::vector<WeightView> pieces;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t member = 0; member < ratio; ++member) {
      for (int64_t head = 0; head < s.key_heads; ++head)
        pieces.push_back(
            {matrix.dtype, 1, s.value_dim, matrix.row(row) + static_cast<size_t>(head * ratio + member) * bytes});
    }
  }
  return pieces;
}

WeightView rows_from(const WeightView& all, int64_t first) {
  return {all.dtype, all.rows - first, all.cols, all.row(first)};
}

// The file stores value heads by key head, GGUF files of Qwen 3.5 by their number below a key head.
void tile(const DeltaRuleShape& s, FileTensor& tensor) {
  const auto is = [&](std::string_view name) { return tensor.name.ends_with(name); };
  WeightView all = tensor.sources.front();
  std::vector<WeightView>& pieces = tensor.parts.front().pieces;
  if (is(".attn_qkv.weight") || is(".ssm_conv1d.weight")) {
    all.cols = tensor.shape.back();
    all.rows = tensor.shape.front();
    pieces = tiled(rows_from(all, 2 * s.key_width()), s, s.value_dim);
    pieces.insert(pieces.begin(), {all.dtype, 2 * s.key_width(), all.cols, all.data});
  } else if (is(".attn_gate.weight")) {
    pieces = tiled(all, s, s.value_dim);
  } else if (is(".ssm_alpha.weight") || is(".ssm_beta.weight")) {
    pieces = tiled(all, s, 1);
  } else if (is(".ssm_a") || is(".ssm_dt.bias")) {
    pieces = tiled({all.dtype, s.value_heads, 1, all.data}, s, 1);
  } else if (is(".ssm_out.weight")) {
    pieces = tiled_columns(all, s);
  }
}

// Qwen3-Next has q, k, v and z of each key head together; the file has z apart.
void divide_input(const DeltaRuleShape& s, FileTensor tensor, std::vector<FileTensor>& out) {
  FileTensor gate = tensor;
  const std::string layer = tensor.name.substr(0, tensor.name.size() - std::string_view("ssm_in.weight").size());
  std::vector<WeightView>& pieces = tensor.parts.front().pieces;
  if (s.key_heads == 1) {  // declared as one piece
    const WeightView all = pieces.front();
    pieces = {{all.dtype, all.rows - s.value_width(), all.cols, all.data},
              {all.dtype, s.value_width(), all.cols, all.row(all.rows - s.value_width())}};
  }
  const auto first = pieces.end() - s.key_heads;  // z of each key head
  gate.name = layer + "attn_gate.weight";
  gate.shape[0] = s.value_width();
  gate.parts.front().pieces.assign(first, pieces.end());
  pieces.erase(first, pieces.end());
  tensor.name = layer + "attn_qkv.weight";
  tensor.shape[0] -= s.value_width();
  out.push_back(std::move(tensor));
  out.push_back(std::move(gate));
}

}  // namespace

void qwen3_next_keys(ArchitectureKeys& k) {
  k.require(k.flag_of("norm_topk_prob", true), "norm_topk_prob = false");
  add_net(k);
}

void qwen3_5_keys(ArchitectureKeys& k) {
  add_net(k);
  // Parts of a head for positions in time, height and width; of a text all are the same.
  auto sections = k.model.keys().optional_array<int64_t>({.hf = "rope_parameters.mrope_section"});
  std::vector<int32_t> four{11, 11, 10, 0};
  for (size_t i = 0; sections && i < 3; ++i) four[i] = i < sections->size() ? static_cast<int32_t>((*sections)[i]) : 0;
  const int32_t pairs = k.model.config.rotary_dim / 2;
  // Sizes that exceed the rotary part end llama.cpp; it gives pairs to time, height and width in turns.
  if (four[0] + four[1] + four[2] > pairs) four = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
  k.counts("rope.dimension_sections", four);
}

void delta_net_tensor(const ConvertedModel& model, FileTensor tensor, std::vector<FileTensor>& out) {
  const DeltaRuleShape shape = net_of(model).shape;
  const auto is = [&](std::string_view name) { return tensor.name.ends_with(name); };
  if (is(".ssm_conv1d.weight")) tensor.shape = {tensor.shape[0], tensor.shape.back()};
  if (is(".ssm_in.weight")) return divide_input(shape, std::move(tensor), out);
  const bool as_stored = is(".ssm_ba.weight") || is(".attn_q.weight");  // declared in the order of the layer
  if (as_stored) {
    WeightView whole = tensor.sources.front();  // the first piece begins the tensor
    whole.rows = tensor.shape.front();
    tensor.parts.front().pieces = {whole};
  }
  if (model.architecture != "qwen3next") tile(shape, tensor);
  out.push_back(std::move(tensor));
}

}  // namespace millrace
