// Q5_1: a group is 16 bytes of nibbles as in Q4_0, a word with the fifth bit of each element, a scale and a minimum.
@bind var<storage, read> w_qs: array<vec4u>;
@bind var<storage, read> w_d: array<vec2u>; // d and m, fifth bits
#include "quants/fifth_bits.wgsl"
#include "quants/group.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let at = row * W_GROUPS + g;
  let q = w_qs[at];
  let r = w_d[at];
  let s = unpack2x16float(r.x) * vec2f(1.0, -1.0);
  return Group(
    (q & vec4u(0x0f0f0f0f)) | fifth_bits(r.y, 0u), ((q >> vec4u(4)) & vec4u(0x0f0f0f0f)) | fifth_bits(r.y, 16u), s, s);
}
