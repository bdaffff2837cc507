// IQ2_XS: a group is four half-words, each a grid index of nine bits (eight elements) and seven signs; and a byte with a
// scale of four bits for each half.
@bind var<storage, read> w_qs: array<vec2u>; // 8 per block, one per group
const GRID = 512u; // patterns; then 6 half-words per block: scales, d
#include "quants/grid.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let words = w_qs[row * W_GROUPS + g];
  let at = GRID + (row * (W_GROUPS / 8u) + g / 8u) * 6u;
  let sub = g % 8u;
  let scales = grid_half(at + sub / 2u) >> (8u * (sub & 1u));
  let d = grid_float(at + 4u) * 0.25;
  var q: array<u32, 8>;
  for (var i = 0u; i < 4u; i++) {
    let half = (select(words.x, words.y, i >= 2u) >> (16u * (i & 1u))) & 0xffffu;
    let eight = grid_half(half & 511u);
    let signs = grid_signs(half >> 9u);
    q[2u * i] = grid_signed(grid_iq2(eight), signs);
    q[2u * i + 1u] = grid_signed(grid_iq2(eight >> 8u), signs >> 4u);
  }
  return grid_group(q, d * (0.5 + f32(scales & 15u)), d * (0.5 + f32((scales >> 4u) & 15u)), 0.0);
}
