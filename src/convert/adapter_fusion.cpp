#include "convert/adapter_fusion.h"

#include "base/error.h"
#include "models/stored_rows.h"
#include "tensor/dequantize.h"

namespace millrace {

AdapterFusion::AdapterFusion(const std::filesystem::path& path, const Weights& weights, const Model& model) {
  if (path.empty()) return;
  packed_ = pack_adapter(read_adapter(path), weights, model, DType::F32);
  std::map<std::string, int> uses;  // of each tensor: a tied output matrix is the embedding table
  for (const Weights::Site& site : weights.sites()) {
    for (const LinearPart& part : site.parts) ++uses[part.name.gguf];
  }
  for (const PackedAdapter::Layer& layer : packed_.layers) {
    const Weights::Site& site = weights.sites()[static_cast<size_t>(layer.site)];
    int32_t column = 0;
    for (const LinearPart& part : site.parts) {
      for (int i = 0; i < layer.weights.parts; ++i) {
        const LoraWeights::Part& own = layer.weights.part[i];
        if (own.column >= column + part.rows || own.column + own.cols <= column) continue;
        if (own.column > column || own.column + own.cols < column + part.rows) {
          fail(ErrorKind::Unsupported,
               "{}: changes rows of '{}', which files of this model store whole: it cannot be fused", path.string(),
               part.name.hf);
        }
        if (part.name.gguf.empty() || part.name.gguf.ends_with('.')) {  // as in Weights::declare()
          fail(ErrorKind::Unsupported, "{}: changes '{}', which GGUF files store in parts: it cannot be fused",
               path.string(), part.name.hf);
        }
        if (uses[part.name.gguf] > 1) {
          fail(ErrorKind::Unsupported,
               "{}: changes only one of the embedding and the output matrix, which are one tensor", path.string());
        }
        deltas_[part.name.gguf] = {&layer, own, site.is_embedding(), column - own.column, part.rows};
      }
      column += static_cast<int32_t>(part.rows);
    }
  }
}

WeightView AdapterFusion::fused(const std::string& gguf, const std::vector<WeightView>& sources, bool is_transposed,
                                std::vector<std::byte>& copy, ThreadPool& threads) const {
  std::vector<std::byte> turned;
  const std::vector<WeightView> rows =
      is_transposed ? std::vector<WeightView>{transposed(sources, turned, threads)} : sources;
  WeightView whole{DType::F32, 0, rows.front().cols, nullptr};
  for (const WeightView& view : rows) whole.rows += view.rows;
  copy.resize(whole.bytes());
  whole.data = copy.data();
  auto* values = reinterpret_cast<float*>(copy.data());
  for (float* to = values; const WeightView& view : rows) {
    for (int64_t i = 0; i < view.rows; ++i, to += view.cols) dequantize_row(view.dtype, view.row(i), to, view.cols);
  }
  const Delta& delta = deltas_.at(gguf);
  const LoraWeights::Part& part = delta.part;
  const LoraWeights weights = delta.layer->at(packed_.bytes.data());
  const auto* all_a = reinterpret_cast<const float*>(weights.a);
  const auto* all_b = reinterpret_cast<const float*>(weights.b) + part.at;
  threads.parallel_for(whole.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* to = values + i * whole.cols;
      const int64_t expert = delta.embedding ? 0 : weights.place_of(i / delta.rows);
      if (expert < 0) continue;
      const int64_t row = delta.embedding ? i : delta.first + i % delta.rows;
      const float *a = all_a + expert * weights.a_step, *b = all_b + expert * weights.b_step;
      for (int64_t j = 0; j < part.rank; ++j) {
        // A of an embedding is [tokens][rank], and B adds to its columns.
        const float factor = delta.embedding ? a[row * part.rank + j] : b[j * part.cols + row];
        const float* from = delta.embedding ? b + j * part.cols : a + (part.first + j) * whole.cols;
        for (int64_t c = 0; c < whole.cols; ++c) to[c] += factor * from[c];
      }
    }
  });
  return whole;
}

}  // namespace millrace
