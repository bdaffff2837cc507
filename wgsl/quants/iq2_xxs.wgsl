// IQ2_XXS: a group is four bytes, each the index of eight numbers in the grid, and a word with four times seven signs
// and a scale in its last four bits.
@bind var<storage, read> w_qs: array<vec2u>; // 8 a block, one a group
const GRID = 256u;
#include "quants/grid.wgsl"
#include "quants/iq2.wgsl"

fn w_group(row: u32, g: u32) -> array<vec4f, 8> {
  let q = w_qs[row * W_GROUPS + g];
  let d = grid_float(GRID + row * (W_GROUPS / 8u) + g / 8u) * (0.5 + f32(q.y >> 28u)) * 0.25;
  var out: array<vec4f, 8>;
  for (var i = 0u; i < 4u; i++) {
    let eight = grid_half((q.x >> (8u * i)) & 0xffu);
    let signs = grid_signs(q.y >> (7u * i));
    out[2u * i] = grid_signed(d * iq2_numbers(eight), signs);
    out[2u * i + 1u] = grid_signed(d * iq2_numbers(eight >> 8u), signs >> 4u);
  }
  return out;
}
