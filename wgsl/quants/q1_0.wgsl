// Q1_0: elements -1 or 1, one bit each; a block is 128 of them, with one scale.
@bind var<storage, read> w_qs: array<u32>; // 4 per block, one per group
#include "quants/scale.wgsl"
#include "quants/group.wgsl"
#include "quants/spread.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let at = row * W_GROUPS + g;
  let bits = w_qs[at];
  let d = w_scale(at / 4u);
  let s = vec2f(2.0 * d, d);
  return Group(
    vec4u(spread_bits(bits), spread_bits(bits >> 4u), spread_bits(bits >> 8u), spread_bits(bits >> 12u)),
    vec4u(spread_bits(bits >> 16u), spread_bits(bits >> 20u), spread_bits(bits >> 24u), spread_bits(bits >> 28u)), s, s);
}
