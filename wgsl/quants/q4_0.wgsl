// Q4_0: a group is 16 bytes and a scale. Byte j has elements j (low nibble) and j + 16 (high nibble), each stored + 8.
@bind var<storage, read> w_qs: array<vec4u>;
#include "quants/scale.wgsl"
#include "quants/bytes.wgsl"

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
#if HALVES
#include "quants/halves.wgsl"
#endif

struct Packed {
  q: vec4u,
  d: f32,
}

fn w_fetch(row: u32, g: u32) -> Packed {
  let at = row * W_GROUPS + g;
  return Packed(w_qs[at], w_scale(at));
}

fn w_dot(w: Packed, g: u32, x: array<Bytes, 1>) -> f32 {
  let dot = group_int_dot(w.q & vec4u(0x0f0f0f0f), (w.q >> vec4u(4)) & vec4u(0x0f0f0f0f), x[0]);
  return w.d * fma(f32(dot), x[0].s.x, -8.0 * x[0].s.y);
}

fn w_load(row: u32, g: u32) -> Group {
  let w = w_fetch(row, g);
  let s = w.d * vec2f(1.0, 8.0);
  return Group(w.q & vec4u(0x0f0f0f0f), (w.q >> vec4u(4)) & vec4u(0x0f0f0f0f), s, s);
}
