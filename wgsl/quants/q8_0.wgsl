// Q8_0: a group is 32 signed bytes and a scale.
@bind var<storage, read> w_qs: array<vec4u>;
#include "quants/scale.wgsl"

fn w_group(row: u32, g: u32) -> array<vec4f, 8> {
  let at = row * W_GROUPS + g;
  let d = w_scale(at);
  let a = w_qs[2u * at];
  let b = w_qs[2u * at + 1u];
  return array(
    d * vec4f(unpack4xI8(a.x)), d * vec4f(unpack4xI8(a.y)), d * vec4f(unpack4xI8(a.z)), d * vec4f(unpack4xI8(a.w)),
    d * vec4f(unpack4xI8(b.x)), d * vec4f(unpack4xI8(b.y)), d * vec4f(unpack4xI8(b.z)), d * vec4f(unpack4xI8(b.w)));
}

// The group's dot product with 32 signed bytes (xa, xb) of scale xd, whose sum times xd is xsum.
fn w_dot(row: u32, g: u32, xa: vec4u, xb: vec4u, xd: f32, xsum: f32) -> f32 {
  let at = row * W_GROUPS + g;
  let a = w_qs[2u * at];
  let b = w_qs[2u * at + 1u];
  let sum = dot4I8Packed(a.x, xa.x) + dot4I8Packed(a.y, xa.y) + dot4I8Packed(a.z, xa.z) + dot4I8Packed(a.w, xa.w)
    + dot4I8Packed(b.x, xb.x) + dot4I8Packed(b.y, xb.y) + dot4I8Packed(b.z, xb.z) + dot4I8Packed(b.w, xb.w);
  return w_scale(at) * f32(sum) * xd;
}
