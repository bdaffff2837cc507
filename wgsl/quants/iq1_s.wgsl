// IQ1_S: a group has four grid indices (eight elements each), a byte each, and a half-word: three more bits per index, a
// scale of three bits, the sign of the shift.
// Codes 0, 1, 2 stand for -1, 0, 1; the eight elements of a pattern are shifted up or down by an eighth. So in eighths of
// the scale an element is 8 * code + (2 or 0) - 9.
@bind var<storage, read> w_qs: array<u32>; // 12 per block: indices, half-words
const GRID = 2048u;
#include "quants/grid.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let index = w_qs[block * 12u + sub];
  let upper = w_qs[block * 12u + 8u + sub / 2u] >> (16u * (sub & 1u));
  let d = grid_float(GRID + block) * f32(2u * ((upper >> 12u) & 7u) + 1u) / 8.0;
  let shift = select(0x02020202u, 0u, (upper & 0x8000u) != 0u);
  var q: array<u32, 8>;
  for (var i = 0u; i < 4u; i++) {
    let eight = grid_half(((index >> (8u * i)) & 0xffu) | (((upper >> (3u * i)) & 7u) << 8u));
    q[2u * i] = spread_pairs(eight) * 8u + shift;
    q[2u * i + 1u] = spread_pairs(eight >> 8u) * 8u + shift;
  }
  return grid_group(q, d, d, 9.0);
}
