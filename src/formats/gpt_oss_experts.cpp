#include "formats/gpt_oss_experts.h"

#include <cstring>

namespace millrace {
namespace {

constexpr std::string_view kGateUpExperts = "mlp.experts.gate_up_proj", kDownExperts = "mlp.experts.down_proj",
                           kGateUpBiases = "mlp.experts.gate_up_proj_bias";

TensorInfo described(const TensorInfo& from, const std::string& name, std::vector<int64_t> shape) {
  const auto count = static_cast<size_t>(*element_count(shape));
  return {name,
          from.dtype,
          from.dtype_name,
          std::move(shape),
          nullptr,
          count * static_cast<size_t>(info(*from.dtype).bytes)};
}

// [E, k, n] -> [E, n / step, k]: every `step`-th column from `first` on becomes a row.
DerivedTensor transposed(const TensorInfo& from, const std::string& name, int64_t step, int64_t first) {
  const int64_t k = from.shape[1], n = from.shape[2], rows = n / step;
  const auto each = static_cast<size_t>(info(*from.dtype).bytes);
  const auto write = [=](int64_t begin, int64_t end, std::byte* out) {
    for (int64_t i = 0; i < k; ++i) {  // outermost: reads along the file's rows
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = (row / rows * k + i) * n + row % rows * step + first;
        std::memcpy(out + static_cast<size_t>((row - begin) * k + i) * each, from.data + static_cast<size_t>(at) * each,
                    each);
      }
    }
  };
  return {described(from, name, {from.shape[0], rows, k}), {from.name}, write};
}

// [E, n] -> [E, n / 2]
DerivedTensor every_second(const TensorInfo& from, const std::string& name, int64_t first) {
  const int64_t n = from.shape[1];
  const auto each = static_cast<size_t>(info(*from.dtype).bytes);
  const auto write = [=](int64_t begin, int64_t end, std::byte* out) {
    for (int64_t at = begin * n + first; at < end * n; at += 2, out += each) {
      std::memcpy(out, from.data + static_cast<size_t>(at) * each, each);
    }
  };
  return {described(from, name, {from.shape[0], n / 2}), {from.name}, write};
}

}  // namespace

std::vector<DerivedTensor> gpt_oss_tensors(std::span<const TensorInfo> tensors, const Config* config) {
  std::vector<DerivedTensor> all;
  if (config == nullptr || config->optional_string({.hf = "model_type"}) != "gpt_oss") return all;
  for (const TensorInfo& tensor : tensors) {
    if (!tensor.dtype || is_quantized(*tensor.dtype)) continue;
    const size_t rank = tensor.shape.size();
    const bool pairs = rank > 0 && tensor.shape.back() % 2 == 0;
    const auto before = [&](std::string_view end) { return tensor.name.substr(0, tensor.name.size() - end.size()); };
    if (rank == 3 && pairs && tensor.name.ends_with(kGateUpExperts)) {
      all.push_back(transposed(tensor, before("gate_up_proj") + "gate_proj", 2, 0));
      all.push_back(transposed(tensor, before("gate_up_proj") + "up_proj", 2, 1));
    } else if (rank == 3 && tensor.name.ends_with(kDownExperts)) {
      all.push_back(transposed(tensor, tensor.name, 1, 0));
    } else if (rank == 2 && pairs && tensor.name.ends_with(kGateUpBiases)) {
      all.push_back(every_second(tensor, before("gate_up_proj_bias") + "gate_proj_bias", 0));
      all.push_back(every_second(tensor, before("gate_up_proj_bias") + "up_proj_bias", 1));
    }
  }
  return all;
}

}  // namespace millrace
