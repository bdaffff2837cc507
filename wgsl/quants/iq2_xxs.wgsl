// IQ2_XXS: a group has four grid indices (eight elements each), a byte each, and a word with four times seven signs and a
// scale in its upper four bits.
@bind var<storage, read> w_qs: array<vec2u>; // 8 per block, one per group
const GRID = 256u;
#include "quants/grid.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let words = w_qs[row * W_GROUPS + g];
  let d = grid_float(GRID + row * (W_GROUPS / 8u) + g / 8u) * (0.5 + f32(words.y >> 28u)) * 0.25;
  var q: array<u32, 8>;
  for (var i = 0u; i < 4u; i++) {
    let eight = grid_half((words.x >> (8u * i)) & 0xffu);
    let signs = grid_signs(words.y >> (7u * i));
    q[2u * i] = grid_signed(grid_iq2(eight), signs);
    q[2u * i + 1u] = grid_signed(grid_iq2(eight >> 8u), signs >> 4u);
  }
  return grid_group(q, d, d, 0.0);
}
