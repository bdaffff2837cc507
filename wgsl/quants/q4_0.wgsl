// Q4_0: a group is 16 bytes and a scale; byte j holds element j in its low and element j + 16 in its high nibble, 8 too big.
@bind var<storage, read> w_qs: array<vec4u>;
#include "quants/scale.wgsl"
const W_HALVES = false;
#include "quants/affine.wgsl"

fn w_integers(row: u32, g: u32) -> Integers {
  let at = row * W_GROUPS + g;
  let q = w_qs[at];
  let s = w_scale(at) * vec2f(1.0, 8.0);
  return Integers(q & vec4u(0x0f0f0f0f), (q >> vec4u(4)) & vec4u(0x0f0f0f0f), s, s);
}
