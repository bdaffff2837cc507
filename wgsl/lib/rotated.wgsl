// A pair of token m's numbers, rotated to the token's position. The kernel has p.rope_scale and rope_freqs.
#include "lib/rotation.wgsl"

fn rotated(v: vec2f, pair: u32, m: u32) -> vec2f {
  return rotate(v, p.rope_scale * cos_sin(offset_of(m) * rope_freqs[pair]));
}
