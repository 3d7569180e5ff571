// The methods based on dot products of quads, for SDOT and plain NEON. Included after the target region: can_run() and
// estimates run on any machine.
#pragma once

struct DotNames {
  std::string_view gemv, flat, full;
};

inline std::array<Rows8Method, 3> dot_methods(Isa isa, const DotNames& names) {
  const Rows8Method gemv{.name = names.gemv,
                         .isa = isa,
                         .max_m = 1,
                         .x_bytes = strip_x_bytes,
                         .quantize = quantize_for_strips,
                         .multiply = strips,
                         .compute_share = 0.55,
                         .unpack_effort_rows = 1,
                         .whole_nibbles = true};
  Rows8Method flat = gemv;
  flat.name = names.flat;
  flat.min_m = 2;
  flat.max_m = 16;
  flat.tile_rows = 4;
  return {gemv, flat,
          Rows8Method{.name = names.full,
                      .isa = isa,
                      .min_m = 2,
                      .tile_rows = kPanelRows,
                      .x_bytes = panel_x_bytes<DotMicro>,
                      .quantize = quantize_for_panels<DotMicro>,
                      .scratch_bytes = DotMicro::kBytes,
                      .strips_per_panel = kPanelStrips,
                      .multiply = panels<DotMicro>,
                      .compute_share = 0.54,  // of 64 products and 24 instructions that scale them; not measured
                      .unpack_rows = 4,
                      .unpack_effort_rows = 1.5,
                      .scale_effort = 0.15}};
}
