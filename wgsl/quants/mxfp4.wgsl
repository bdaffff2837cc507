// MXFP4: a group is 32 floats of four bits, and a byte e for the scale 2^(e - 127) (OCP Microscaling Formats 1.0).
@bind var<storage, read> w_qs: array<vec4u>;
@bind var<storage, read> w_d: array<u32>; // four exponents per word
#include "quants/fp4_book.wgsl"

struct Packed {
  q: vec4u,
  d: f32, // half of the scale
}

fn w_fetch(row: u32, g: u32) -> Packed {
  let at = row * W_GROUPS + g;
  let e = (w_d[at / 4u] >> (8u * (at & 3u))) & 0xffu;
  let bits = select((e - 1u) << 23u, 0x00200000u << e, e < 2u);
  return Packed(w_qs[at], bitcast<f32>(bits));
}

fn w_dot(w: Packed, g: u32, x: array<Bytes, 1>) -> f32 {
  let n = fp4_numbers(w.q);
  return w.d * f32(int_dot(n.low, x[0].a) + int_dot(n.high, x[0].b)) * x[0].s.x;
}

fn w_load(row: u32, g: u32) -> Group {
  let w = w_fetch(row, g);
  let n = fp4_numbers(w.q);
  let s = vec2f(w.d, 0.0);
  return Group(n.low, n.high, s, s);
}
