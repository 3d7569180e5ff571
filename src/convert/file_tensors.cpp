// The tensors of the file: declared ones under their own names, in the order of llama.cpp's RoPE.
#include <set>

#include "convert/architecture_keys.h"

namespace millrace {
namespace {

std::string own_name(const ArchitectureRule& rule, const std::string& usual) {
  constexpr std::string_view kFeedNorm = "ffn_norm.weight";
  if (!rule.feed_norm_after || !usual.ends_with("." + std::string(kFeedNorm))) return usual;
  return usual.substr(0, usual.size() - kFeedNorm.size()) + "post_attention_norm.weight";
}

FileTensor as_declared(const ConvertedModel& model, const ArchitectureRule& rule, const DeclaredTensor& declared) {
  FileTensor out{.name = own_name(rule, declared.gguf),
                 .shape = declared.shape,
                 .sources = declared.pieces,
                 .parts = {{declared.pieces, {.add = declared.add, .map = declared.map}}},
                 .transposed = declared.transposed,
                 .declared = declared.gguf};
  // llama.cpp has the gate of a shared expert as a vector.
  if (declared.gguf.ends_with("ffn_gate_inp_shexp.weight")) out.shape = {declared.shape.back()};
  if (rule.rotates_pairs && model.config.head_dim % 2 == 0) {  // heads of odd size do not rotate
    const auto is = [&](const char* part) { return declared.gguf.find(part) != std::string::npos; };
    out.paired = is(".attn_q.") ? model.config.heads : is(".attn_k.") ? model.config.kv_heads : 0;
    if (out.paired > 0)
      out.parts.front().pieces = in_pairs(declared.pieces.front(), declared.shape.size() == 1, out.paired);
  }
  return out;
}

}  // namespace

std::vector<WeightView> in_pairs(WeightView whole, bool bias, int64_t heads) {
  if (bias) std::swap(whole.rows, whole.cols);
  const int64_t half = whole.rows / heads / 2;
  std::vector<WeightView> rows;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < half; ++i) {
      for (const int64_t part : {0, 1})
        rows.push_back({whole.dtype, 1, whole.cols, whole.row((2 * head + part) * half + i)});
    }
  }
  return rows;
}

std::vector<ComputedTensor> missing_biases(const ConvertedModel& model) {
  std::vector<std::string> matrices;
  if (model.architecture == "phimoe") matrices = {"output", "attn_output"};
  if (model.architecture == "mamba2") matrices = {"ssm_conv1d"};
  std::vector<ComputedTensor> zeros;
  for (const DeclaredTensor& tensor : model.tensors) {
    for (const std::string& matrix : matrices) {
      const bool is = tensor.gguf == matrix + ".weight" || tensor.gguf.ends_with("." + matrix + ".weight");
      const std::string bias = tensor.gguf.substr(0, tensor.gguf.rfind('.')) + ".bias";
      if (is && !model.has(bias)) zeros.push_back({bias, std::vector<float>(static_cast<size_t>(tensor.shape[0]))});
    }
  }
  return zeros;
}

std::vector<FileTensor> file_tensors(const ConvertedModel& model) {
  const ArchitectureRule& rule = *find_rule(model.architecture);
  std::set<std::string_view> names;  // an embedding that is also the output matrix is declared twice
  std::vector<FileTensor> tensors;
  for (const DeclaredTensor& declared : model.tensors) {
    if (!names.insert(declared.gguf).second) continue;
    FileTensor tensor = as_declared(model, rule, declared);
    if (rule.edit != nullptr) {
      rule.edit(model, std::move(tensor), tensors);
    } else {
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

}  // namespace millrace
