// The layers of a decode step: attention, then the linear layers up to the next layer's qkv, with a choice of kernels.
// For programs that time them or record when their blocks run.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "kernels/attention/cuda/launch.h"
#include "kernels/linear/cuda/launch.h"
#include "support.cuh"

namespace millrace {

inline constexpr int kLayers = 8, kMostTokens = 64, kPage = 64;

struct Model {
  const char* name;
  int hidden, feed, heads, kv_heads, head_dim;
  int kv_dim() const { return kv_heads * head_dim; }
  int qkv() const { return hidden + 2 * kv_dim(); }
};
inline constexpr Model kModels[] = {
    {"8B", 4096, 14336, 32, 8, 128}, {"7B", 4096, 11008, 32, 32, 128}, {"1B", 2048, 8192, 32, 8, 64}};

inline const CudaLinearKernel* find_kernel(std::string_view name) {
  for (const CudaLinearKernel& kernel : cuda_linear_kernels()) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

// The kernels of a layer: attention (or none), and those of o, gate/up, down and qkv (or none).
struct Way {
  const char* name;
  const CudaAttentionKind* attention;
  const char* linear[4];
};

struct Call {
  CudaLinearProblem problem;
  CudaLinearArgs args;
};

class Step {
 public:
  Step(const Model& model, DType format, const CudaLimits& limits, int m, int depth, cudaStream_t stream)
      : model_(model),
        format_(format),
        limits_(limits),
        m_(m),
        depth_(depth),
        pages_(depth / kPage + 1),
        stream_(stream),
        workspace_(size_t{64} << 20),
        rows_(size_t{64} << 20),
        tables_(size_t{1} << 20),
        weights_(kLayers * bytes_of_layer()),
        kv_(kLayers * 2 * bytes_of_keys()) {
    // Random bits are valid quantized weights: arbitrary nibbles and finite scales.
    for (DeviceBuffer* buffer : {&weights_, &kv_}) {
      fill_random<<<1024, 256, 0, stream>>>(buffer->as<__nv_bfloat16>(), buffer->bytes() / 2, 1, 0.05f);
    }
    // Rows are floats up to `attended` and 16-bit numbers from there on; bits of floats would be NaN as 16-bit numbers.
    fill_random<<<64, 256, 0, stream>>>(rows_.as<float>(), rows_.bytes() / 4, 2, 1.f);
    const int wide = 2 * model.hidden + model.feed + model.qkv();
    fill_random<<<64, 256, 0, stream>>>(rows().attended, size_t(kMostTokens) * size_t(wide), 3, 1.f);
    CHECK(cudaMemsetAsync(workspace_.as(), 0, workspace_.bytes(), stream));
    CHECK(cudaStreamSynchronize(stream));
    place_tables();
  }

  size_t bytes_of_layer() const {
    const int h = model_.hidden, feed = model_.feed;
    return packed_linear_bytes(format_, h, h) + packed_linear_bytes(format_, 2 * feed, h) +
           packed_linear_bytes(format_, h, feed) + packed_linear_bytes(format_, model_.qkv(), h);
  }
  size_t bytes_of_keys() const { return size_t(m_) * pages_ * kPage * model_.kv_dim() * 2; }
  double roof_us() const { return double(bytes_of_layer() + 4.0 * m_ * depth_ * model_.kv_dim()) / 4.45e6; }

  double us(const Way& way) {
    const CudaAttentionPlan plan = plan_of(way);
    if (way.attention != nullptr && !plan.can_run()) return -1;
    return time_cold(kLayers, 15, stream_, [&](int i, cudaStream_t) { return run(way, plan, i); });
  }

  CudaAttentionPlan plan_of(const Way& way) const {
    return way.attention != nullptr ? plan_cuda_attention(shape(*way.attention)) : CudaAttentionPlan{};
  }
  bool run(const Way& way, const CudaAttentionPlan& plan, int i) const {
    if (way.attention != nullptr && launch_cuda_attention(plan, attention_args(i), {stream_, true}) != 0) return false;
    return way.linear[0] == nullptr || run_linear(way, i, {stream_, true});
  }

 private:
  CudaAttentionShape shape(CudaAttentionKind kind) const {
    CudaAttentionShape s;
    s.kind = kind;
    s.softmax = Softmax::Lazy;
    s.heads = model_.heads;
    s.kv_heads = model_.kv_heads;
    s.head_dim = model_.head_dim;
    s.block_size = kPage;
    s.sequences = m_;
    s.total_rows = m_;
    s.max_context = kind == CudaAttentionKind::DecodeCluster ? pages_ * kPage : 0;
    return s;
  }

  void place_tables() {
    std::vector<DeviceSlice> slices;
    std::vector<int32_t> pages, slots;
    for (int i = 0; i < m_; ++i) {
      slices.push_back({i, 1, depth_, 0});
      for (int page = 0; page < pages_; ++page) pages.push_back(i * pages_ + page);
      slots.push_back((i * pages_ + depth_ / kPage) * kPage + depth_ % kPage);
    }
    slices_ = tables_.as<DeviceSlice>();
    page_table_ = reinterpret_cast<int32_t*>(slices_ + kMostTokens);
    slots_ = page_table_ + pages.size();
    CHECK(cudaMemcpy(slices_, slices.data(), slices.size() * sizeof(DeviceSlice), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(page_table_, pages.data(), pages.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(slots_, slots.data(), slots.size() * 4, cudaMemcpyHostToDevice));
  }

  // The activation buffers, in order.
  struct Rows {
    float *hidden, *norm, *squares, *angles;
    __nv_bfloat16 *attended, *scaled, *feed, *qkv;
  };
  Rows rows() const {
    const int h = model_.hidden;
    Rows r{};
    r.hidden = rows_.as<float>();
    r.norm = r.hidden + kMostTokens * h;
    r.squares = r.norm + h;
    r.angles = r.squares + kMostTokens * h;
    r.attended = reinterpret_cast<__nv_bfloat16*>(r.angles + kMostTokens * model_.head_dim);
    r.scaled = r.attended + kMostTokens * h;
    r.feed = r.scaled + kMostTokens * h;
    r.qkv = r.feed + kMostTokens * model_.feed;
    return r;
  }

  CudaAttentionArgs attention_args(int layer) const {
    const Rows r = rows();
    const int64_t stride = model_.qkv();
    CudaAttentionArgs a;
    a.q = {r.qkv, DType::BF16, stride};
    a.out = {r.attended, DType::BF16, model_.hidden};
    a.keys = kv_.as<uint8_t>() + size_t(2 * layer) * bytes_of_keys();
    a.values = kv_.as<uint8_t>() + size_t(2 * layer + 1) * bytes_of_keys();
    a.fresh = {r.qkv + model_.hidden, r.qkv + model_.hidden + model_.kv_dim(), stride, r.angles, true, slots_};
    a.slices = slices_;
    a.tables = page_table_;
    a.table_pitch = pages_;
    a.scale = 0.1f;
    a.workspace = workspace_.as();
    a.early = true;
    return a;
  }

  bool run_linear(const Way& way, int index, const CudaStep& step) const {
    const bool shares = find_kernel(way.linear[0])->splits_norm != nullptr;
    const auto calls = layer(index, shares);
    for (size_t i = 0; i < calls.size(); ++i) {
      const CudaLinearKernel& kernel = *find_kernel(way.linear[i]);
      const auto& [p, a] = calls[i];
      if (!kernel.can_run(p, limits_) || kernel.run(p, a, limits_, step) != cudaSuccess) return false;
    }
    return true;
  }

  std::array<Call, 4> layer(int index, bool shares) const {
    const int h = model_.hidden;
    const Rows r = rows();
    auto* at = weights_.as<uint8_t>() + bytes_of_layer() * size_t(index);
    std::array<Call, 4> calls;
    size_t count = 0;
    const auto add = [&](int n, int k, const void* x, void* y, DType type, bool accumulate, bool gated) {
      Call call{{format_, DType::BF16, type, n, k, m_, accumulate, gated}, {}};
      call.args.x = x;
      call.args.x_stride = k;
      call.args.weights = at;
      call.args.y = y;
      call.args.y_stride = gated ? n / 2 : n;
      call.args.epsilon = 1e-5f;
      if (shares && accumulate) call.args.ahead = {r.norm, r.scaled, h, r.squares};
      if (shares && !accumulate) call.args.squares = r.squares;
      if (!shares && !accumulate) call.args.norm = r.norm, call.args.x = r.hidden;
      at += packed_linear_bytes(format_, n, k);
      calls[count++] = call;
    };
    add(h, h, r.attended, r.hidden, DType::F32, true, false);
    add(2 * model_.feed, h, r.scaled, r.feed, DType::BF16, false, true);
    add(h, model_.feed, r.feed, r.hidden, DType::F32, true, false);
    add(model_.qkv(), h, r.scaled, r.qkv, DType::BF16, false, false);
    return calls;
  }

  Model model_;
  DType format_;
  CudaLimits limits_;
  int m_, depth_, pages_;
  cudaStream_t stream_;
  DeviceBuffer workspace_, rows_, tables_, weights_, kv_;
  DeviceSlice* slices_ = nullptr;
  int32_t *page_table_ = nullptr, *slots_ = nullptr;
};

}  // namespace millrace
