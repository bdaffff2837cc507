// Q5_0: a group is 16 bytes of nibbles as in Q4_0, a word with the fifth bits, and a scale. Elements are stored + 16.
@bind var<storage, read> w_qs: array<vec4u>;
@bind var<storage, read> w_d: array<vec2u>; // fifth bits, d
#include "quants/fifth_bits.wgsl"
#include "quants/group.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let at = row * W_GROUPS + g;
  let q = w_qs[at];
  let r = w_d[at];
  let s = unpack2x16float(r.y).x * vec2f(1.0, 16.0);
  return Group(
    (q & vec4u(0x0f0f0f0f)) | fifth_bits(r.x, 0u), ((q >> vec4u(4)) & vec4u(0x0f0f0f0f)) | fifth_bits(r.x, 16u), s, s);
}
