// IQ1_M: a group is four bytes of index of eight numbers in the grid, each with a nibble: three more bits and the sign
// of its shift. Sixteen numbers share a scale of three bits, four of which fill a half-word of w_d with a quarter of d.
// A code 0, 1 or 2 stands for -1, 0, 1, all eight of a pattern shifted up or down by an eighth: in eighths of the scale,
// 8 * code and 2 or 0, less 9.
@bind var<storage, read> w_qs: array<u32>; // 12 a block: indices, nibbles
const GRID = 2048u; // 4 half-words a block behind it
#include "quants/grid.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let index = w_qs[block * 12u + sub];
  let upper = w_qs[block * 12u + 8u + sub / 2u] >> (16u * (sub & 1u));
  let at = GRID / 2u + block * 2u; // words
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
