// Q4_0: a group is 16 bytes and a scale; byte j holds element j in its low and element j + 16 in its high nibble, 8 too big.
@bind var<storage, read> w_qs: array<vec4u>;
#include "quants/scale.wgsl"

fn q4_0_nibbles(word: u32, d: f32) -> vec4f {
  return d * (vec4f(unpack4xU8(word & 0x0f0f0f0fu)) - 8.0);
}

fn w_group(row: u32, g: u32) -> array<vec4f, 8> {
  let at = row * W_GROUPS + g;
  let d = w_scale(at);
  let q = w_qs[at];
  let h = q >> vec4u(4);
  return array(
    q4_0_nibbles(q.x, d), q4_0_nibbles(q.y, d), q4_0_nibbles(q.z, d), q4_0_nibbles(q.w, d),
    q4_0_nibbles(h.x, d), q4_0_nibbles(h.y, d), q4_0_nibbles(h.z, d), q4_0_nibbles(h.w, d));
}

// The group's dot product with 32 signed bytes (xa, xb) of scale xd, whose sum times xd is xsum.
fn w_dot(row: u32, g: u32, xa: vec4u, xb: vec4u, xd: f32, xsum: f32) -> f32 {
  let at = row * W_GROUPS + g;
  let q = w_qs[at];
  let lo = q & vec4u(0x0f0f0f0f);
  let hi = (q >> vec4u(4)) & vec4u(0x0f0f0f0f);
  let sum = dot4I8Packed(lo.x, xa.x) + dot4I8Packed(lo.y, xa.y) + dot4I8Packed(lo.z, xa.z) + dot4I8Packed(lo.w, xa.w)
    + dot4I8Packed(hi.x, xb.x) + dot4I8Packed(hi.y, xb.y) + dot4I8Packed(hi.z, xb.z) + dot4I8Packed(hi.w, xb.w);
  return w_scale(at) * (f32(sum) * xd - 8.0 * xsum);
}
