// The columns of part g of a row of W in products of floats: 8 vectors of four. Of float weights they are W_GROUPS loads
// apart, so that neighbouring threads load neighbouring addresses; of other types they are a group, which has a scale.
#if QUANT in ("f32", "f16", "bf16")
#include "lib/strided_at.wgsl"

fn w_part(row: u32, g: u32) -> array<vec4f, 8> {
  return w_strided(row, g);
}

// Vector of x for vector i of part g.
fn part_at(g: u32, i: u32) -> u32 {
  return strided_at(g, i);
}
#else

fn w_part(row: u32, g: u32) -> array<vec4f, 8> {
  return w_group(row, g);
}

fn part_at(g: u32, i: u32) -> u32 {
  return 8u * g + i;
}
#endif
