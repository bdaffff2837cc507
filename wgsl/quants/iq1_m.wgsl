// IQ1_M: a group has four grid indices (eight elements each): a byte each, and a nibble with three more bits and the sign of
// the shift. Sixteen elements share a scale of three bits. Half-words of w_d hold four scales and four bits of d each.
// Codes 0, 1, 2 stand for -1, 0, 1; the eight elements of a pattern are shifted up or down by an eighth. So in eighths of
// the scale an element is 8 * code + (2 or 0) - 9.
@bind var<storage, read> w_qs: array<u32>; // 12 per block: indices, nibbles
const GRID = 2048u; // patterns; then 4 half-words per block
#include "quants/grid.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let index = w_qs[block * 12u + sub];
  let upper = w_qs[block * 12u + 8u + sub / 2u] >> (16u * (sub & 1u));
  let at = GRID / 2u + block * 2u; // in words
  let r = vec2u(w_d[at], w_d[at + 1u]);
  let d = unpack2x16float(((r.x >> 12u) & 0xfu) | ((r.x >> 24u) & 0xf0u) | ((r.y >> 4u) & 0xf00u) | ((r.y >> 16u) & 0xf000u)).x;
  let scales = select(r.x, r.y, sub >= 4u) >> (16u * ((sub >> 1u) & 1u) + 6u * (sub & 1u));
  var q: array<u32, 8>;
  for (var i = 0u; i < 4u; i++) {
    let nibble = upper >> (4u * i);
    let eight = grid_half(((index >> (8u * i)) & 0xffu) | ((nibble & 7u) << 8u));
    let shift = select(0x02020202u, 0u, (nibble & 8u) != 0u);
    q[2u * i] = spread_pairs(eight) * 8u + shift;
    q[2u * i + 1u] = spread_pairs(eight >> 8u) * 8u + shift;
  }
  let s = d * f32(2u * (scales & 7u) + 1u) / 8.0;
  let t = d * f32(2u * ((scales >> 3u) & 7u) + 1u) / 8.0;
  return grid_group(q, s, t, 9.0);
}
