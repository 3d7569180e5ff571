#include "engine/adapter_packing.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "engine/adapter_experts.h"
#include "tensor/half.h"

namespace millrace {
namespace {

// Rows of q or k between the two orders: [heads][2][half] of Hugging Face, [heads][half][2] of GGUF.
Floats reordered(const Floats& rows, int64_t n, int64_t heads, bool to_pairs) {
  const int64_t half = n / heads / 2, cols = std::ssize(rows) / n;
  Floats result(rows.size());
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < half; ++i) {
      for (const int64_t part : {0, 1}) {
        const int64_t halves = (2 * head + part) * half + i, pairs = (head * half + i) * 2 + part;
        const int64_t from = to_pairs ? halves : pairs, to = to_pairs ? pairs : halves;
        std::copy_n(&rows[size_t(from * cols)], cols, &result[size_t(to * cols)]);
      }
    }
  }
  return result;
}

class Packing {
 public:
  Packing(const AdapterFile& file, const Weights& weights, const Model& model, DType format)
      : file_(file), weights_(weights), format_(format), foreign_(file.convention != weights.source().convention()) {
    if (model.pools()) fail(ErrorKind::Unsupported, "{}: models that pool take no adapters", file.origin);
    if (!foreign_ && !file.architecture.empty()) check_architecture();
    if (foreign_ && !model.keeps_row_order()) {
      fail(ErrorKind::Unsupported,
           "{}: this architecture stores rows in another order in {}; convert the adapter or the model", file.origin,
           file.convention == WeightSource::Convention::Gguf ? "GGUF files" : "Hugging Face folders");
    }
    for (const AdapterPair& pair : file.pairs) {
      if (!pairs_.emplace(std::pair(pair.module, pair.expert), &pair).second)
        fail(ErrorKind::BadFile, "{}: '{}' is there twice", file.origin, pair.module);
    }
  }

  PackedAdapter run() {
    packed_.origin = file_.origin;
    const auto sites = weights_.sites();
    for (size_t i = 0; i < sites.size(); ++i) {
      sites[i].grouped != nullptr ? add_experts(static_cast<int>(i), sites[i])
                                  : add_site(static_cast<int>(i), sites[i]);
    }
    if (!pairs_.empty()) refuse_layer(pairs_.begin()->first.first);
    return std::move(packed_);
  }

 private:
  // Layers of different architectures have the same names, and sometimes the same shapes.
  void check_architecture() const {
    const Architecture& own = find_architecture(weights_.source());
    if (std::find(own.gguf.begin(), own.gguf.end(), file_.architecture) != own.gguf.end()) return;
    fail(ErrorKind::Unsupported, "{}: is an adapter of a model of architecture '{:.80}', this one is '{}'",
         file_.origin, file_.architecture, own.name);
  }
  [[noreturn]] void refuse_layer(const std::string& module) const {
    if (module.ends_with(".kv_b_proj") || module.ends_with(".attn_kv_b.weight")) {
      fail(ErrorKind::Unsupported, "{}: changes '{}', which latent attention takes apart: it takes no adapters",
           file_.origin, module);
    }
    fail(ErrorKind::Unsupported, "{}: this model has no linear layer '{}'", file_.origin, module);
  }

  // The names under which adapters know a part. A tied output matrix is stored under the name of the embedding.
  std::string name_of(const LinearPart& part, bool embedding) const {
    const bool tied = !embedding && part.name.gguf == "token_embd.weight";
    if (file_.convention == WeightSource::Convention::Gguf) return tied ? "output.weight" : part.name.gguf;
    if (tied) return "lm_head";
    std::string_view name = part.name.hf;
    if (name.ends_with(".weight")) name.remove_suffix(std::string_view(".weight").size());
    return plain_module(name);
  }

  void add_site(int index, const Weights::Site& site) {
    const bool embedding = site.is_embedding();
    PackedAdapter::Layer layer{.site = index};
    Floats a, b;
    const auto take = [&](const std::vector<LinearPart>& parts) {
      int32_t column = 0;
      std::string taken;  // name of the last one
      for (const LinearPart& part : parts) {
        const auto found = pairs_.find({name_of(part, embedding), -1});
        if (found != pairs_.end() && found->second->embedding == embedding) {
          add_part(*found->second, site, part, column, layer.weights, a, b);
          taken = found->first.first;
          pairs_.erase(found);
        }
        column += static_cast<int32_t>(part.rows);
      }
      return taken;
    };
    if (const std::string taken = take(site.parts); !taken.empty()) {
      for (const LinearPart& part : site.other_parts) {
        if (const std::string other = name_of(part, false); pairs_.contains({other, -1}))
          fail(ErrorKind::BadFile, "{}: changes '{}' and '{}', which share rows", file_.origin, taken, other);
      }
    } else {
      take(site.other_parts);
    }
    if (layer.weights.parts == 0) return;
    layer.a = store(a);
    layer.b = store(b);
    packed_.layers.push_back(layer);
  }

  void add_experts(int index, const Weights::Site& site) {
    std::vector<ExpertChange> changes;
    const auto take = [&](const LinearPart& part, int64_t column) {
      ExpertChange change{{}, part.rows, static_cast<int32_t>(column)};
      if (file_.convention == WeightSource::Convention::HuggingFace) change.stored_by = part.stored_by;
      change.inputs_first = part.transposed;
      const std::string name = name_of(part, false);
      auto at = pairs_.lower_bound({name, std::numeric_limits<int64_t>::min()});
      for (; at != pairs_.end() && at->first.first == name; at = pairs_.erase(at)) change.pairs.push_back(at->second);
      if (!change.pairs.empty()) changes.push_back(std::move(change));
    };
    if (site.whole.rows > 0) take(site.whole, 0);
    const bool whole = !changes.empty();
    for (int64_t column = 0; const LinearPart& part : site.parts) {
      take(part, column);
      column += part.rows;
    }
    if (changes.empty()) return;
    const std::string& module = changes[0].pairs[0]->module;
    if (whole && changes.size() > 1)
      fail(ErrorKind::BadFile, "{}: '{}' is there as one matrix and in parts", file_.origin, module);
    if (site.grouped->site < 0) {
      fail(
          ErrorKind::Unsupported,
          "{}: changes experts ('{}') that lie in host memory, where they take no adapters; run on the CPU, or fuse it "
          "with millrace convert --lora",
          file_.origin, module);
    }
    PackedExperts packed = pack_experts(changes, site.grouped->all_groups, site.k, file_.origin);
    for (int i = 0; i < packed.weights.parts; ++i)
      packed_.rank = std::max<int64_t>(packed_.rank, packed.weights.part[i].rank);
    const size_t a = store(packed.a), b = store(packed.b);
    packed_.layers.push_back({index, packed.weights, a, b});
    if (!packed.place.empty()) packed_.layers.back().place = append(std::as_bytes(std::span(packed.place)));
  }

  void check(const AdapterPair& pair, const Weights::Site& site, const LinearPart& part) const {
    const bool by_token = pair.embedding && file_.convention == WeightSource::Convention::Gguf;
    const int64_t k = pair.a.shape[by_token ? 0 : 1], n = pair.b.shape[0];
    if (k != site.k || n != part.rows) {
      fail(ErrorKind::BadFile, "{}: '{}' is for a matrix [{}, {}], the model has [{}, {}]", file_.origin, pair.module,
           n, k, part.rows, site.k);
    }
  }

  void add_part(const AdapterPair& pair, const Weights::Site& site, const LinearPart& part, int32_t column,
                LoraWeights& layer, Floats& a, Floats& b) {
    check(pair, site, part);
    const auto rank = static_cast<int32_t>(pair.rank), first = layer.rank;
    Floats shrink = read_matrix(pair.a, file_.origin);
    if (pair.embedding && file_.convention == WeightSource::Convention::HuggingFace)
      shrink = transposed(shrink, rank, site.k);
    a.insert(a.end(), shrink.begin(), shrink.end());
    layer.rank += rank;
    packed_.rank = std::max(packed_.rank, pair.rank);

    Floats expand = in_order(read_matrix(pair.b, file_.origin), part);
    scale(expand, pair.scale, pair.module, file_.origin);
    const auto add = [&](int64_t begin, int64_t rows, int32_t at, int32_t group) {
      MR_ASSERT(layer.parts < LoraWeights::kMostParts);
      layer.part[layer.parts++] = {at, static_cast<int32_t>(rows), first, rank, std::ssize(b), group};
      const Floats piece(expand.begin() + begin * rank, expand.begin() + (begin + rows) * rank);
      const Floats columns = transposed(piece, rows, rank);
      b.insert(b.end(), columns.begin(), columns.end());
    };
    const int64_t group = gate_group(site);
    if (group == 0) return add(0, part.rows, column, 0);
    const int64_t half = site.linear->n / 2;  // gate and up, as two parts or as one
    const auto at = [&](int64_t row) { return static_cast<int32_t>(row < half ? 0 : group); };
    if (part.rows == half) return add(0, half, at(column), static_cast<int32_t>(group));
    add(0, half, at(0), static_cast<int32_t>(group));
    add(half, half, at(half), static_cast<int32_t>(group));
  }

  // Groups of gate and up that alternate in the output of the layer; 0: they do not.
  int64_t gate_group(const Weights::Site& site) const {
    const Linear* linear = site.linear;
    if (linear == nullptr || !linear->gated || linear->on_host || !weights_.on_device()) return 0;
    return linear->parts[0].weights.layout->gate_group();
  }

  // The rows of B in the order of the layer's outputs.
  Floats in_order(Floats rows, const LinearPart& part) const {
    if (foreign_) {
      const auto is = [&](const char* name) { return part.name.gguf.find(name) != std::string::npos; };
      const Weights::PairedHeads& heads = weights_.paired_heads;
      const int64_t count = is(".attn_q.") ? heads.q : is(".attn_k.") ? heads.k : 0;
      const bool to_pairs = file_.convention == WeightSource::Convention::HuggingFace;
      if (count > 0) return reordered(rows, part.rows, count, to_pairs);
    }
    const int64_t cols = std::ssize(rows) / part.rows;
    const WeightView view{DType::F32, part.rows, cols, reinterpret_cast<const std::byte*>(rows.data())};
    Floats result;
    for (const WeightView& piece : in_layer_order(view, part.stored_by)) {
      const auto* values = reinterpret_cast<const float*>(piece.data);
      result.insert(result.end(), values, values + piece.rows * piece.cols);
    }
    return result;
  }

  // Appends the values in the format of the kernels and returns their offset.
  size_t store(const Floats& values) {
    if (format_ == DType::F32) return append(std::as_bytes(std::span(values)));
    std::vector<uint16_t> halves;
    halves.reserve(values.size());
    for (const float value : values) halves.push_back(format_ == DType::F16 ? f32_to_f16(value) : f32_to_bf16(value));
    return append(std::as_bytes(std::span(halves)));
  }
  size_t append(std::span<const std::byte> values) {
    const size_t at = packed_.bytes.size();
    packed_.bytes.resize(at + Arena::padded(values.size()));
    std::copy(values.begin(), values.end(), packed_.bytes.begin() + static_cast<long>(at));
    return at;
  }

  const AdapterFile& file_;
  const Weights& weights_;
  DType format_;
  bool foreign_;                                                         // the adapter's convention is not the model's
  std::map<std::pair<std::string, int64_t>, const AdapterPair*> pairs_;  // by module and expert
  PackedAdapter packed_;
};

}  // namespace

LoraWeights PackedAdapter::Layer::at(const std::byte* memory) const {
  LoraWeights placed = weights;
  placed.a = memory + a;
  placed.b = memory + b;
  if (place) placed.place = reinterpret_cast<const int32_t*>(memory + *place);
  return placed;
}

PackedAdapter pack_adapter(const AdapterFile& file, const Weights& weights, const Model& model, DType format) {
  return Packing(file, weights, model, format).run();
}

}  // namespace millrace
