// A test architecture that exercises the model interfaces: a layer with attention, a layer with a convolution whose
// state is a slot, and a last layer without attention whose rows each choose one of several matrices.
#pragma once

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
    const Matrix normed = p.buffer("normed", hidden.cols), scores = p.buffer("scores", kExperts);
    const Matrix chosen = p.buffer("chosen expert", DType::F32, p.rows(), 1);  // 32-bit ids
    const Matrix branch = p.buffer("branch", DType::F32, p.rows(), hidden.cols);
    p.rms_norm(hidden, norms_[2], normed);
    p.linear(normed, router_, scores);
    auto* ids = reinterpret_cast<int32_t*>(chosen.data);
    p.ops.argmax({scores, ids});
    p.ops.call<GroupedLinearOp>({experts_->dtype, kExperts, hidden.cols, hidden.cols, p.ops.bucket(p.rows())},
                                {.x = normed, .weights = *experts_, .groups = ids, .y = branch});
    p.ops.add(hidden, branch, hidden);
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
