#include "quants/bytes.wgsl"
// Dequantisation that most types share, by w_load().

fn w_group(row: u32, g: u32) -> array<vec4f, 8> {
  let w = w_load(row, g);
  return array(
    w.s.x * vec4f(unpack4xI8(w.a.x)) - w.s.y, w.s.x * vec4f(unpack4xI8(w.a.y)) - w.s.y,
    w.s.x * vec4f(unpack4xI8(w.a.z)) - w.s.y, w.s.x * vec4f(unpack4xI8(w.a.w)) - w.s.y,
    w.t.x * vec4f(unpack4xI8(w.b.x)) - w.t.y, w.t.x * vec4f(unpack4xI8(w.b.y)) - w.t.y,
    w.t.x * vec4f(unpack4xI8(w.b.z)) - w.t.y, w.t.x * vec4f(unpack4xI8(w.b.w)) - w.t.y);
}
#if HALVES
#include "quants/halves.wgsl"
#endif

fn group_dot(w: Group, x: Bytes) -> f32 {
  let ones = bytes_dot(x.a, vec4u(0x01010101)); // of x's first half; the compiler shares it between rows
  let minima = fma(w.s.y, x.s.x * ones, w.t.y * fma(-x.s.x, ones, x.s.y));
  return fma(x.s.x, fma(w.s.x, bytes_dot(w.a, x.a), w.t.x * bytes_dot(w.b, x.b)), -minima);
}
