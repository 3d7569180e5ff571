// The arguments of the dataflow for the kernels of latent attention.
#pragma once

#include <bit>

#include "kernels/attention/attention.h"
#include "kernels/attention/cuda/decode/params.cuh"
#include "kernels/cuda/convert.h"

namespace millrace {

// All but the workspace.
inline DecodeParams latent_params(const AttentionArgs& a) {
  DecodeParams p;
  p.args.q = cuda_matrix(a.q);
  p.args.out = cuda_matrix(a.out);
  p.args.keys = p.args.values = a.kv.keys;
  p.args.slices = reinterpret_cast<const DeviceSlice*>(a.tables.slices);
  p.args.tables = a.tables.pages;
  p.args.table_pitch = a.tables.page_stride;
  p.args.scale = a.scale;
  p.args.softcap = a.softcap;
  p.args.phi = a.phi;
  p.args.sinks = a.sinks;
  p.args.early = true;  // tables are complete before the step; latent_write lets kernels start once it has waited
  p.sequences = static_cast<int>(a.sequences.size());
  p.kv_heads = 1;
  p.group = a.heads;
  p.block_size = a.kv.block_size;
  const auto block = static_cast<unsigned>(a.kv.block_size);
  if (std::has_single_bit(block)) p.block_shift = std::countr_zero(block);
  return p;
}

inline int64_t latent_rows(const AttentionArgs& a) {
  int64_t rows = 0;
  for (const auto& slice : a.sequences) rows += slice.rows;
  return rows;
}

// Tiles of `tile_rows` query rows in all sequences, at most.
inline int64_t latent_tiles(const AttentionArgs& a, int tile_rows) {
  const auto sequences = std::ssize(a.sequences);
  const int64_t each = (int64_t{a.tables.longest_slice} * a.heads + tile_rows - 1) / tile_rows;
  return std::min(sequences * each, latent_rows(a) * a.heads / tile_rows + sequences);
}

}  // namespace millrace
