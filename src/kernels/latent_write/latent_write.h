// The new rows of multi-head latent attention (MLA), made ready for attention in one launch or parallel region: applies
// the norm to the latent part and RoPE to the rotary part of each row and stores the row in its page; applies RoPE to
// the rotary parts of the queries and places them behind the absorbed parts, where attention reads them. Where queries
// and rows are columns of one product, it also copies the other parts of the queries: a head then is a row.
#pragma once

#include <string>

#include "kernels/attention/attention.h"
#include "kernels/rope/style.h"

namespace millrace {

struct LatentWriteOp {
  static constexpr std::string_view kName = "latent_write";
  struct Problem {
    DType kv = DType::F32;
    RopeStyle style = RopeStyle::Halves;
    int64_t rows = 0;
    int heads = 0, plain_dim = 0, rotary_dim = 0, latent_dim = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    RopeStyle style = RopeStyle::Halves;
    Matrix row;                   // [rows, latent_dim + rotary_dim]; a kernel may leave anything in it
    const float* norm = nullptr;  // [latent_dim]
    float epsilon = 1e-6f;
    Matrix q;         // [rows, heads * (plain_dim + rotary_dim)]; a kernel may rotate the rotary parts in place
    Matrix absorbed;  // [rows, heads * (latent_dim + rotary_dim)]; only the rotary parts are written
    Matrix plain;     // [rows, heads * plain_dim]: the parts of q without RoPE; no columns: they are not wanted
    Matrix angles;    // [rows, rotary_dim] contiguous: rotary_dim / 2 cosines, then as many sines
    KvLayer kv;       // latent, of one KV head
    int heads = 0;
    std::span<const SequenceSlice> sequences;
    SliceTables tables;  // on a GPU

    int rotary_dim() const { return kv.key_dim - kv.value_dim; }
    int plain_dim() const { return static_cast<int>(q.cols) / heads - rotary_dim(); }
  };

  static KernelList<LatentWriteOp> cpu();
  static KernelList<LatentWriteOp> cuda();
  static const Kernel<LatentWriteOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const LatentWriteOp::Problem& problem);

}  // namespace millrace
