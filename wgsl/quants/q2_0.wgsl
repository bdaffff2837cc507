// Q2_0: elements -1, 0, 1 or 2, stored + 1 in two bits each; a block is 64 of them, with one scale.
@bind var<storage, read> w_qs: array<vec2u>; // 2 per block, one per group
#include "quants/scale.wgsl"
#include "quants/group.wgsl"
#include "quants/spread.wgsl"

fn w_four(word: u32) -> vec4u {
  return vec4u(spread_pairs(word), spread_pairs(word >> 8u), spread_pairs(word >> 16u), spread_pairs(word >> 24u));
}

fn w_load(row: u32, g: u32) -> Group {
  let at = row * W_GROUPS + g;
  let words = w_qs[at];
  let s = vec2f(w_scale(at / 2u));
  return Group(w_four(words.x), w_four(words.y), s, s);
}
