// Cases of the ops of latent attention, for the tests of both back-ends.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/latent_write/latent_write.h"
#include "support.h"
#include "tensor/dequantize.h"

namespace millrace {

inline std::vector<LatentWriteOp::Problem> latent_write_cases() {
  std::vector<LatentWriteOp::Problem> cases;
  for (const DType kv : {DType::F32, DType::F16, DType::BF16, DType::Q8_0}) {
    cases.push_back({kv, RopeStyle::Interleaved, 21, 3, 24, 16, 48});
    cases.push_back({kv, RopeStyle::Halves, 37, 16, 128, 64, 512});
  }
  cases.push_back({DType::F32, RopeStyle::Halves, 19, 2, 5, 6, 9});
  return cases;
}

// A decode, a prompt that continues in the middle of a page, and another decode.
class LatentBatch {
 public:
  LatentBatch(const LatentWriteOp::Problem& p, Random& random)
      : problem(p),
        row(p.rows, p.latent_dim + p.rotary_dim, random),
        q(p.rows, int64_t{p.heads} * (p.plain_dim + p.rotary_dim), random),
        angles(p.rows, p.rotary_dim, random),
        absorbed(p.rows, int64_t{p.heads} * (p.latent_dim + p.rotary_dim)),
        plain(p.rows, int64_t{p.heads} * p.plain_dim),
        pages(static_cast<size_t>(p.rows / kBlock + 4)) {
    for (int i = 0; i < p.latent_dim; ++i) norm.push_back(random.normal());
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
    random.shuffle(pages);
    const std::span<const int32_t> all(pages);
    const auto prompt = static_cast<int32_t>(p.rows - 2);
    slices = {{0, 1, 3, 0, all.first(1)}, {1, prompt, 7, 0, all.subspan(2)}, {1 + prompt, 1, 0, 0, all.subspan(1, 1)}};
    kv = {p.kv, 1, p.latent_dim + p.rotary_dim, p.latent_dim, kBlock};
    kv.latent = true;
  }

  size_t bytes() const { return kv.key_offset(std::ssize(pages), 0, 0); }

  LatentWriteOp::Args args(Matrix own_row, Matrix own_q, Matrix own_absorbed, std::byte* memory) {
    kv.keys = kv.values = memory;
    return {.style = problem.style,
            .row = own_row,
            .norm = norm.data(),
            .epsilon = 1e-6f,
            .q = own_q,
            .absorbed = own_absorbed,
            .angles = angles.view(),
            .kv = kv,
            .heads = problem.heads,
            .sequences = slices};
  }

  static constexpr int kBlock = 16;
  LatentWriteOp::Problem problem;
  TestMatrix row, q, angles, absorbed, plain;
  std::vector<float> norm;
  std::vector<int32_t> pages;
  std::vector<SequenceSlice> slices;
  KvLayer kv;
};

// Whether `got` has the plain parts of the queries.
inline bool is_plain_part(LatentBatch& batch, TestMatrix& got) {
  const LatentWriteOp::Problem& p = batch.problem;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t c = 0; c < int64_t{p.heads} * p.plain_dim; ++c) {
      const int64_t from = c / p.plain_dim * (p.plain_dim + p.rotary_dim) + c % p.plain_dim;
      if (got.at(r, c) != batch.q.at(r, from)) return false;
    }
  }
  return got.spare_is_untouched();
}

// The largest difference of the queries' rotary parts; infinite if other elements were written.
inline double rotary_distance(const LatentWriteOp::Problem& p, TestMatrix& got, TestMatrix& expected) {
  double error = 0;
  const int64_t each = p.latent_dim + p.rotary_dim;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t c = 0; c < p.heads * each; ++c) {
      const bool rotary = c % each >= p.latent_dim;
      if (!rotary && !std::isnan(got.at(r, c))) return std::numeric_limits<double>::infinity();
      if (rotary) error = std::max(error, std::abs(double(got.at(r, c)) - expected.at(r, c)));
    }
  }
  return error;
}

// The largest difference of stored rows relative to the largest number; infinite if other rows were written.
inline double page_distance(const KvLayer& kv, std::span<const std::byte> got, std::span<const std::byte> expected,
                            std::byte untouched) {
  std::vector<float> a(static_cast<size_t>(kv.key_dim)), b(a.size());
  double error = 0, largest = 0;
  for (size_t at = 0; at < expected.size(); at += kv.key_row_bytes()) {
    const auto row = expected.subspan(at, kv.key_row_bytes()), other = got.subspan(at, kv.key_row_bytes());
    if (std::all_of(row.begin(), row.end(), [&](std::byte x) { return x == untouched; })) {
      if (!std::equal(row.begin(), row.end(), other.begin())) return std::numeric_limits<double>::infinity();
      continue;
    }
    dequantize_row(kv.dtype, row.data(), a.data(), kv.key_dim);
    dequantize_row(kv.dtype, other.data(), b.data(), kv.key_dim);
    for (size_t i = 0; i < a.size(); ++i) {
      error = std::max(error, std::abs(double(a[i]) - b[i]));
      largest = std::max(largest, std::abs(double(a[i])));
    }
  }
  return error / largest;
}

}  // namespace millrace
