// A test architecture that exercises the model interfaces: a layer with attention, a layer with a convolution whose
// state is a slot, and a last layer without attention whose rows each choose one of several matrices.
#pragma once

#include <array>
#include <cmath>

#include "models/blocks.h"
#include "models/model.h"

namespace millrace {

class Toy final : public Model {
 public:
  static constexpr int kTaps = 3;
  static constexpr int64_t kChannels = 48, kExperts = 4;

  Toy(const WeightSource& source, Weights& w, StateLayout& state)
      : config_(read_decoder_config(source)), rope_(w.placed(read_rope_frequencies(source, config_))) {
    const auto& c = config_;
    const auto linear = [&](const char* name, int64_t n, int64_t k) { return w.linear({{{"", name}, n}}, k); };
    for (int i = 0; i < 4; ++i) norms_[i] = w.vector({"", "norm." + std::to_string(i)}, c.hidden);
    embedding_ = w.table({"", "embed.weight"}, c.vocab, c.hidden);
    attention_ = {linear("qkv.weight", c.qkv_dim(), c.hidden), linear("out.weight", c.hidden, c.q_dim())};
    conv_in_ = linear("conv_in.weight", kChannels, c.hidden);
    taps_ = w.vector({"", "taps"}, kChannels * kTaps);
    conv_out_ = linear("conv_out.weight", c.hidden, kChannels);
    router_ = linear("router.weight", kExperts, c.hidden);
    experts_ = w.table({"", "experts.weight"}, kExperts * c.hidden, c.hidden);
    head_ = linear("head.weight", c.vocab, c.hidden);
    keys_ = state.paged({c.kv_heads, c.head_dim, c.head_dim});
    inputs_ = state.slot({DType::F32, (kTaps - 1) * kChannels});
  }

  const DecoderConfig& config() const override { return config_; }

  void forward(Pass& p) const override {
    Matrix hidden = p.embed(*embedding_);
    attend(p, hidden);
    convolve(p, hidden);
    p.narrow({&hidden});
    if (p.rows() > 0) add_expert(p, hidden);
    p.head(p.rms_norm(hidden, norms_[3]), head_);
  }

 private:
  void attend(Pass& p, Matrix hidden) const {
    const AttentionSettings settings{.heads = config_.heads, .scale = 1 / std::sqrt(float(config_.head_dim))};
    const Rope rope = p.rope(rope_, RopeStyle::Halves);
    const Matrix attended = attention_block(p, attention_, p.rms_norm(hidden, norms_[0]), keys_, rope, settings);
    p.add_linear(attended, attention_.out, hidden);
  }

  void convolve(Pass& p, Matrix hidden) const {
    const Matrix mixed = p.buffer("mixed", kChannels), convolved = p.buffer("convolved", kChannels);
    p.linear(p.rms_norm(hidden, norms_[1]), conv_in_, mixed);
    const SlotView slot = p.slot(inputs_);
    p.ops.call<CausalConvOp>({p.ops.bucket(p.rows()), kChannels, kTaps}, {.x = mixed,
                                                                          .out = convolved,
                                                                          .weight = taps_->data,
                                                                          .taps = kTaps,
                                                                          .state = slot.data,
                                                                          .stride = slot.stride,
                                                                          .sequences = p.batch.sequences});
    p.add_linear(convolved, conv_out_, hidden);
  }

  void add_expert(Pass& p, Matrix hidden) const {
    const int64_t n = hidden.cols, rows = p.rows(), bucket = p.ops.bucket(rows);
    const Matrix normed = p.buffer("normed", n), scores = p.buffer("scores", DType::F32, rows, kExperts);
    const auto ids = [&](const char* name, int64_t count) {
      return reinterpret_cast<int32_t*>(p.buffer(name, DType::F32, 1, count).data);
    };
    const Routing routing{.rows = rows,
                          .groups = kExperts,
                          .chosen = ids("chosen", rows),
                          .weights = reinterpret_cast<float*>(ids("expert weights", rows)),
                          .order = ids("order", rows),
                          .offsets = ids("offsets", kExperts + 1)};
    p.rms_norm(hidden, norms_[2], normed);
    p.linear(normed, router_, scores);
    const RouterSettings settings{.scoring = Scoring::SoftmaxOfChosen};  // one expert with the weight one
    p.ops.call<RouterOp>({settings, kExperts, bucket}, {.settings = settings, .logits = scores, .routing = routing});
    std::array<const std::byte*, kExperts> each;
    for (int64_t e = 0; e < kExperts; ++e) each[static_cast<size_t>(e)] = experts_->row(e * n);
    const LinearLayout& rows_layout = *p.ops.kernels().layouts.back();
    const GroupedWeights weights{experts_->dtype, kExperts, n, n, &rows_layout, each, experts_->bytes() / kExperts};
    p.ops.call<GroupedLinearOp>({.format = experts_->dtype,
                                 .layout = rows_layout.name(),
                                 .groups = kExperts,
                                 .n = n,
                                 .k = n,
                                 .rows = bucket,
                                 .sum = true},
                                {.x = normed, .weights = &weights, .routing = routing, .sum = true, .y = hidden});
  }

  DecoderConfig config_;
  RopeFrequencies rope_;
  const Vector* norms_[4];       // [hidden]
  const WeightView* embedding_;  // [vocab, hidden]
  AttentionWeights attention_;
  const Linear *conv_in_, *conv_out_;  // [kChannels, hidden], [hidden, kChannels]
  const Vector* taps_;                 // [kChannels][kTaps]
  const Linear* router_;               // [kExperts, hidden]
  const WeightView* experts_;          // [kExperts * hidden, hidden]
  const Linear* head_;                 // [vocab, hidden]
  int keys_, inputs_;                  // state: paged rows, a slot
};

inline const Architecture kToy{"toy", {}, {"Toy"}, [](const WeightSource& source, Weights& w, StateLayout& state) {
                                 return std::unique_ptr<Model>(std::make_unique<Toy>(source, w, state));
                               }};

}  // namespace millrace
