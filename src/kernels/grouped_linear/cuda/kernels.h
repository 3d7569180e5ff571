// The grouped linear kernels of the GPU, and what their estimates and conditions share.
#pragma once

#include <algorithm>
#include <span>

#include "kernels/cuda/cost.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/linear/cuda/packed.h"

namespace millrace {

const Kernel<GroupedLinearOp>* cuda_grouped_heads();                           // 16-bit weights of heads, decodes
const Kernel<GroupedLinearOp>* cuda_grouped_pairs();                           // 16-bit weights, few tokens
std::span<const Kernel<GroupedLinearOp>* const> cuda_grouped_tiles();          // 16-bit weights
std::span<const Kernel<GroupedLinearOp>* const> cuda_grouped_packed();         // quantized weights
const Kernel<GroupedLinearOp>* cuda_grouped_packed_pairs();                    // quantized weights, few tokens, Hopper
std::span<const Kernel<GroupedLinearOp>* const> cuda_grouped_packed_flat();    // quantized weights, few pairs, Hopper
std::span<const Kernel<GroupedLinearOp>* const> cuda_grouped_packed_stream();  // the same, as an even stream
const Kernel<GroupedLinearOp>* cuda_grouped_prompt();                          // 16-bit weights, prompts, Hopper
const Kernel<GroupedLinearOp>* cuda_grouped_packed_prompt();                   // quantized weights, prompts, Hopper
const Kernel<GroupedLinearOp>* cuda_grouped_simple();  // any format in the file's rows, f32 arithmetic

// Forms that no model asks for are not built.
inline bool is_grouped_form(const GroupedLinearProblem& p) { return p.gated ? p.n % 2 == 0 && !p.sum : true; }

// 16-bit weights in rows as cuda_bf16 or cuda_f16 store them, and x of the same type.
inline bool is_plain_grouped(const GroupedLinearProblem& p) {
  return p.precision == Precision::Fast && p.format == p.x && (p.x == DType::BF16 || p.x == DType::F16) &&
         cuda_packed_type(p.layout) == p.x && is_grouped_form(p);
}

bool is_packed_grouped(const GroupedLinearProblem& problem);  // quantized weights in units, and x in bf16

// Formats whose four bits index a table, which takes more instructions than others.
inline bool is_table_format(DType format) { return format == DType::IQ4_NL || format == DType::IQ4_XS; }

// Tiles of `size` pairs on average. Half-full ones count as one for each group.
inline double expected_tiles(const GroupedLinearProblem& p, int size) {
  const double active = std::max(p.expected_active(), 0.01), each = p.expected_pairs() / active;
  return active * (each <= size / 2 ? 1 : each / size + 0.5);
}

// Time to decode weights in units once for each of `tiles` tiles of pairs and to multiply them, with `each`
// instructions for a weight, at `part` of the rate of the device. Table formats take more, Q4_0 and MXFP4 less.
inline double decode_us(const GroupedLinearProblem& p, DType format, double tiles, double each, double part,
                        const Hardware& hardware) {
  const double decoding = is_table_format(format) ? 1.5 : format == DType::Q4_0 || format == DType::MXFP4 ? 0.83 : 1;
  return double(p.n) * double(p.k) * tiles * each * decoding / (128.0 * 1700.0 * part * hardware.cores);
}

// Time to add up a row's pairs in a second kernel: their products, of `bytes` each, are written and read.
inline double adding_us(const GroupedLinearProblem& p, double bytes, const Hardware& hardware) {
  const double products = p.sum ? 2 * bytes * p.expected_pairs() * double(p.n) : 0;
  return gpu_us(products, hardware, 0.6) + (p.sum ? hardware.ceilings.region_us : 0);
}

// Blocks that multiply tiles of `size` pairs, and the parts of the device's peaks that they reach (measured on an
// H200).
struct TileRates {
  double size, part_of_peak, part_of_bandwidth;
};

// Time of such a kernel. The first tile of a group streams `row_bytes` per row of weights from memory, further ones
// find most of them in the cache. Tiles are multiplied in whole.
inline double tiles_us(const GroupedLinearProblem& p, const Hardware& hardware, const TileRates& rates,
                       double row_bytes, double product_bytes) {
  constexpr double kBeginUs = 4;  // until the first products
  const double size = rates.size;
  const double active = std::max(p.expected_active(), 0.01), each = p.expected_pairs() / active;
  const double tiles = active * (each <= size / 2 ? 1 : each / size + 0.5);
  const double streamed = double(p.n) * row_bytes * (active + 0.3 * (tiles - active));
  const double flops = 2.0 * double(p.n) * double(p.k) * tiles * size;
  const double stream_us = streamed / (rates.part_of_bandwidth * hardware.ceilings.read_gbs) * 1e-3;
  const double multiply_us = flops / (rates.part_of_peak * hardware.ceilings.bf16_gflops) * 1e-3;
  return kBeginUs + std::max(stream_us, multiply_us) + adding_us(p, product_bytes, hardware);
}

}  // namespace millrace
