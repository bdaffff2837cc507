// IQ3_XXS: a group is eight bytes, each the index of four numbers in the grid, and a word with four times seven signs
// and a scale in its last four bits. The grid's codes 0 to 7 stand for 4, 12, 20, 28, 36, 44, 52, 62.
@bind var<storage, read> w_qs: array<u32>; // 24 a block: indices, signs and scales
const GRID = 256u;
#include "quants/grid.wgsl"

fn iq3_xxs_numbers(index: u32) -> vec4f {
  let c = (vec4u(grid_half(index)) >> vec4u(0, 4, 8, 12)) & vec4u(7);
  return vec4f(4u + 8u * c + select(vec4u(0), vec4u(2), c == vec4u(7)));
}

fn w_group(row: u32, g: u32) -> array<vec4f, 8> {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let at = block * 24u;
  let sub = g % 8u;
  let last = w_qs[at + 16u + sub];
  let d = grid_float(GRID + block) * (0.5 + f32(last >> 28u)) * 0.5;
  var out: array<vec4f, 8>;
  for (var i = 0u; i < 8u; i++) {
    let index = (w_qs[at + 2u * sub + i / 4u] >> (8u * (i & 3u))) & 0xffu;
    out[i] = grid_signed(d * iq3_xxs_numbers(index), grid_signs(last >> (i / 2u * 7u)) >> (4u * (i & 1u)));
  }
  return out;
}
