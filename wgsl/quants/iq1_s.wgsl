// IQ1_S: a group is four bytes of index of eight numbers in the grid and a half-word: three more bits for each index,
// three bits of scale, and the sign of the shift.
@bind var<storage, read> w_qs: array<u32>; // 12 a block: indices, half-words
const GRID = 2048u;
#include "quants/grid.wgsl"
#include "quants/iq1.wgsl"

fn w_group(row: u32, g: u32) -> array<vec4f, 8> {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let index = w_qs[block * 12u + sub];
  let upper = w_qs[block * 12u + 8u + sub / 2u] >> (16u * (sub & 1u));
  let d = grid_float(GRID + block) * f32(2u * ((upper >> 12u) & 7u) + 1u);
  let shift = select(0.125, -0.125, (upper & 0x8000u) != 0u);
  var out: array<vec4f, 8>;
  for (var i = 0u; i < 4u; i++) {
    let eight = grid_half(((index >> (8u * i)) & 0xffu) | (((upper >> (3u * i)) & 7u) << 8u));
    out[2u * i] = iq1_numbers(eight, d, shift);
    out[2u * i + 1u] = iq1_numbers(eight >> 8u, d, shift);
  }
  return out;
}
