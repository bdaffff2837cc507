// IQ2_S: a group has four grid indices (eight elements each), a byte each; four bytes of signs; a byte with two more bits
// per index; and a byte with a scale of four bits for each half.
@bind var<storage, read> w_qs: array<u32>; // 16 per block: indices, signs
const GRID = 1024u; // patterns; then 10 half-words per block: upper bits, scales, d
#include "quants/grid.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let index = w_qs[block * 16u + sub];
  let negative = w_qs[block * 16u + 8u + sub];
  let at = GRID + block * 10u;
  let upper = grid_half(at + sub / 2u) >> (8u * (sub & 1u));
  let scales = grid_half(at + 4u + sub / 2u) >> (8u * (sub & 1u));
  let d = grid_float(at + 8u) * 0.25;
  var q: array<u32, 8>;
  for (var i = 0u; i < 4u; i++) {
    let eight = grid_half(((index >> (8u * i)) & 0xffu) | (((upper >> (2u * i)) & 3u) << 8u));
    let signs = negative >> (8u * i);
    q[2u * i] = grid_signed(grid_iq2(eight), signs);
    q[2u * i + 1u] = grid_signed(grid_iq2(eight >> 8u), signs >> 4u);
  }
  return grid_group(q, d * (0.5 + f32(scales & 15u)), d * (0.5 + f32((scales >> 4u) & 15u)), 0.0);
}
