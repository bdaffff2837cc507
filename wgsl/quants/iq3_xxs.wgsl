// IQ3_XXS: a group has eight grid indices (four elements each), a byte each, and a word with four times seven signs and a
// scale in its upper four bits. Codes 0 to 7 stand for 4, 12, 20, 28, 36, 44, 52, 62.
@bind var<storage, read> w_qs: array<u32>; // 24 per block: indices, then signs and scales
const GRID = 256u;
#include "quants/grid.wgsl"

fn iq3_xxs_numbers(index: u32) -> u32 {
  let c = spread_nibbles(grid_half(index));
  return c * 8u + 0x04040404u + (((c + 0x01010101u) >> 2u) & 0x02020202u);
}

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let at = block * 24u;
  let sub = g % 8u;
  let last = w_qs[at + 16u + sub];
  let d = grid_float(GRID + block) * (0.5 + f32(last >> 28u)) * 0.5;
  var q: array<u32, 8>;
  for (var i = 0u; i < 8u; i++) {
    let index = (w_qs[at + 2u * sub + i / 4u] >> (8u * (i & 3u))) & 0xffu;
    q[i] = grid_signed(iq3_xxs_numbers(index), grid_signs(last >> (i / 2u * 7u)) >> (4u * (i & 1u)));
  }
  return grid_group(q, d, d, 0.0);
}
