#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kv_write/kv_write.h"
#include "kernels/latent_write/latent_write.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

// RoPE of n elements, from x to out.
void rotate(RopeStyle style, const float* x, const float* angles, int n, float* out) {
  const int half = n / 2;
  for (int i = 0; i < half; ++i) {
    const int a = style == RopeStyle::Halves ? i : 2 * i, b = style == RopeStyle::Halves ? half + i : 2 * i + 1;
    const double cosine = angles[i], sine = angles[half + i], first = x[a], second = x[b];
    out[a] = static_cast<float>(first * cosine - second * sine);
    out[b] = static_cast<float>(second * cosine + first * sine);
  }
}

class ReferenceLatentWrite final : public Kernel<LatentWriteOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.device == DeviceKind::Cpu && is_kv_dtype(p.kv, p.latent_dim + p.rotary_dim);
  }
  double estimate_us(const Problem& p, const Hardware&) const override {
    return scalar_work_us(p.rows * (p.latent_dim + (p.heads + 1) * p.rotary_dim));
  }

  void run(const Args& a, const Executor& executor) const override {
    for (const SequenceSlice& slice : a.sequences) {
      for (int32_t i = 0; i < slice.rows; ++i) {
        write_row(a, slice, i, executor);
        rotate_queries(a, slice.first_row + i);
      }
    }
  }

 private:
  static void write_row(const Args& a, const SequenceSlice& slice, int32_t i, const Executor& executor) {
    const int latent = a.kv.value_dim, rotary = a.rotary_dim();
    const int64_t row = slice.first_row + i;
    const float* x = a.row.row<float>(row);
    double squares = 0;
    for (int c = 0; c < latent; ++c) squares += double(x[c]) * x[c];
    const double factor = 1 / std::sqrt(squares / latent + a.epsilon);
    std::vector<float> stored(static_cast<size_t>(latent + rotary));
    for (int c = 0; c < latent; ++c) stored[static_cast<size_t>(c)] = static_cast<float>(x[c] * factor * a.norm[c]);
    rotate(a.style, x + latent, a.angles.row<float>(row), rotary, stored.data() + latent);
    SequenceSlice one = slice;
    one.past += i;
    one.first_row = 0;
    one.rows = 1;
    const Matrix k{DType::F32, 1, latent + rotary, latent + rotary, reinterpret_cast<std::byte*>(stored.data())};
    KvWriteOp::reference()->run({k, {}, a.kv, {&one, 1}, {}}, executor);
  }

  static void rotate_queries(const Args& a, int64_t row) {
    const int rotary = a.rotary_dim(), plain = a.plain_dim();
    for (int head = 0; head < a.heads; ++head) {
      rotate(a.style, a.q.row<float>(row) + head * (plain + rotary) + plain, a.angles.row<float>(row), rotary,
             a.absorbed.row<float>(row) + int64_t{head} * a.kv.key_dim + a.kv.value_dim);
      if (a.plain.cols > 0)
        std::copy_n(a.q.row<float>(row) + head * (plain + rotary), plain, a.plain.row<float>(row) + head * plain);
    }
  }
};

}  // namespace

const Kernel<LatentWriteOp>* LatentWriteOp::reference() {
  static const ReferenceLatentWrite kernel;
  return &kernel;
}

std::string to_string(const LatentWriteOp::Problem& p) {
  return fmt::format("latent_write {} {} rows={} heads={} plain={} rotary={} latent={}", name(p.kv),
                     p.style == RopeStyle::Halves ? "halves" : "interleaved", p.rows, p.heads, p.plain_dim,
                     p.rotary_dim, p.latent_dim);
}

}  // namespace millrace
