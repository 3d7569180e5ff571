// A batch of the attention tests in GPU memory.
#pragma once

#include "cuda/support.h"
#include "kernels/attention_cases.h"

namespace millrace {

class GpuBatch {
 public:
  GpuBatch(AttentionBatch& batch, TestMatrix& out, DType activations) : args_(batch.args(out)) {
    const size_t bytes = batch.pool_bytes();
    keys_ = std::make_unique<GpuBytes>(args_.kv.keys, bytes);
    values_ = std::make_unique<GpuBytes>(args_.kv.values, bytes);
    q_ = std::make_unique<GpuCopy>(batch.q(), activations);
    out_ = std::make_unique<GpuCopy>(out, activations);
    size_t stride = 1;
    for (const auto& s : args_.sequences) stride = std::max(stride, s.pages.size());
    std::vector<SliceTables::Slice> slices;
    std::vector<int32_t> pages(stride * args_.sequences.size(), 0), positions, slots;
    for (size_t i = 0; i < args_.sequences.size(); ++i) {
      const SequenceSlice& s = args_.sequences[i];
      slices.push_back({s.first_row, s.rows, s.past, s.past + s.rows});
      std::copy(s.pages.begin(), s.pages.end(), pages.begin() + static_cast<int64_t>(i * stride));
      args_.tables.longest_slice = std::max(args_.tables.longest_slice, s.rows);
      for (int32_t r = 0; r < s.rows; ++r) positions.push_back(s.past + r);
    }
    slices_ = std::make_unique<GpuBytes>(slices);
    pages_ = std::make_unique<GpuBytes>(pages);
    positions_ = std::make_unique<GpuBytes>(positions);
    args_.tables.slices = slices_->as<SliceTables::Slice>();
    args_.tables.pages = pages_->as<int32_t>();
    args_.tables.page_stride = static_cast<int64_t>(stride);
    args_.tables.positions = positions_->as<int32_t>();
    args_.kv.keys = keys_->data();
    args_.kv.values = values_->data();
    args_.q = q_->view();
    args_.out = out_->view();
    if (!batch.sinks().empty()) sinks_ = std::make_unique<GpuBytes>(batch.sinks());
    if (sinks_ != nullptr) args_.sinks = sinks_->as<float>();
  }

  void set_phi(const std::vector<float>& phi) {
    phi_ = std::make_unique<GpuBytes>(phi);
    args_.phi = phi_->as<float>();
  }

  void make_invariant() { args_.invariant = true; }

  // Keeps the later slices only, as a step does for prompts after its decodes.
  void skip(size_t slices) {
    args_.sequences = args_.sequences.subspan(slices);
    args_.tables.slices += slices;
    args_.tables.pages += static_cast<int64_t>(slices) * args_.tables.page_stride;
  }

  TestMatrix run(const AttentionKernel& kernel, const AttentionProblem& problem, TestMatrix out) const {
    const std::vector<std::byte> zeros(kernel.workspace_bytes(problem, gpu().hardware()), std::byte{0});
    const GpuBytes workspace(zeros);
    kernel.run(args_, on_gpu(workspace.data()));
    kernel.run(args_, on_gpu(workspace.data()));  // the first launch must leave the workspace ready for another
    return read(std::move(out));
  }
  TestMatrix read(TestMatrix out) const {
    out_->read(out);
    EXPECT_TRUE(out.spare_is_untouched());
    return out;
  }
  const AttentionArgs& args() const { return args_; }

 private:
  AttentionArgs args_;
  std::unique_ptr<GpuBytes> keys_, values_, slices_, pages_, positions_, phi_, sinks_;
  std::unique_ptr<GpuCopy> q_, out_;
};

}  // namespace millrace
