// Q8_0: a group is 32 signed bytes and a scale.
@bind var<storage, read> w_qs: array<vec4u>;
#include "quants/scale.wgsl"
#include "quants/bytes.wgsl"

fn w_group(row: u32, g: u32) -> array<vec4f, 8> {
  let at = row * W_GROUPS + g;
  let d = w_scale(at);
  let a = w_qs[2u * at];
  let b = w_qs[2u * at + 1u];
  return array(
    d * vec4f(unpack4xI8(a.x)), d * vec4f(unpack4xI8(a.y)), d * vec4f(unpack4xI8(a.z)), d * vec4f(unpack4xI8(a.w)),
    d * vec4f(unpack4xI8(b.x)), d * vec4f(unpack4xI8(b.y)), d * vec4f(unpack4xI8(b.z)), d * vec4f(unpack4xI8(b.w)));
}
#if HALVES
#include "quants/halves.wgsl"
#endif

struct Packed {
  a: vec4u,
  b: vec4u,
  d: f32,
}

fn w_fetch(row: u32, g: u32) -> Packed {
  let at = row * W_GROUPS + g;
  return Packed(w_qs[2u * at], w_qs[2u * at + 1u], w_scale(at));
}

fn w_dot(w: Packed, g: u32, x: array<Bytes, 1>) -> f32 {
  return w.d * f32(group_int_dot(w.a, w.b, x[0])) * x[0].s.x;
}

fn w_load(row: u32, g: u32) -> Group {
  let w = w_fetch(row, g);
  let s = vec2f(w.d, 0.0);
  return Group(w.a, w.b, s, s);
}
