// How the problems of the small ops read in the plan cache and in explain.
#include <fmt/format.h>

#include "kernels/kernel_set.h"

namespace millrace {
namespace {

constexpr std::string_view kActivations[] = {"silu", "gelu_tanh", "gelu_erf", "relu"};
constexpr std::string_view kElementwise[] = {"add", "scale", "softcap", "gather"};

std::string dims(int key_dim, int value_dim, bool latent) {
  if (key_dim == value_dim && !latent) return fmt::format("head_dim={}", key_dim);
  return fmt::format("key_dim={} value_dim={}{}", key_dim, value_dim, latent ? " latent" : "");
}

}  // namespace

std::string to_string(const ActivationOp::Problem& p) {
  return fmt::format("activation {}{} {}x{}", kActivations[static_cast<int>(p.kind)], p.gated ? " gated" : "", p.rows,
                     p.cols);
}

std::string to_string(const ArgmaxOp::Problem& p) { return fmt::format("argmax {}x{}", p.rows, p.cols); }

std::string to_string(const ElementwiseOp::Problem& p) {
  return fmt::format("elementwise {} {}x{}", kElementwise[static_cast<int>(p.kind)], p.rows, p.cols);
}

std::string to_string(const EmbeddingOp::Problem& p) {
  return fmt::format("embedding {} {}x{}", name(p.format), p.rows, p.cols);
}

std::string to_string(const KvWriteOp::Problem& p) {
  return fmt::format("kv_write {} kv_heads={} {} rows={}", name(p.kv), p.kv_heads,
                     dims(p.key_dim, p.value_dim, p.latent), p.rows);
}

std::string to_string(const NormOp::Problem& p) {
  return fmt::format("norm {} {}x{} groups={}", p.kind == NormKind::Rms ? "rms" : "layer", p.rows, p.cols, p.groups);
}

std::string to_string(const RopeOp::Problem& p) {
  return fmt::format("rope {} rows={} heads={} head_dim={} rotary_dim={}",
                     p.style == RopeStyle::Halves ? "halves" : "interleaved", p.rows, p.heads, p.head_dim,
                     p.rotary_dim);
}

std::string to_string(const SampleOp::Problem& p) { return fmt::format("sample {}x{}", p.rows, p.cols); }

std::string to_string(const RopeWriteOp::Problem& p) {
  return fmt::format("rope_write {} {} rows={} heads={}/{} {} rotary_dim={}", name(p.kv),
                     p.style == RopeStyle::Halves ? "halves" : "interleaved", p.rows, p.heads, p.kv_heads,
                     dims(p.key_dim, p.value_dim, p.latent), p.rotary_dim);
}

}  // namespace millrace
