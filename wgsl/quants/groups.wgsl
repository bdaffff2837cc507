#include "quants/bytes.wgsl"
// What most types have in common: a group is 32 numbers q, a signed byte each, that stand for q * s.x - s.y; the last 16
// have t in place of s. A fragment that includes this defines w_load.
struct Group {
  a: vec4u, // the first 16
  b: vec4u,
  s: vec2f,
  t: vec2f,
}

fn w_group(row: u32, g: u32) -> array<vec4f, 8> {
  let w = w_load(row, g);
  return array(
    w.s.x * vec4f(unpack4xI8(w.a.x)) - w.s.y, w.s.x * vec4f(unpack4xI8(w.a.y)) - w.s.y,
    w.s.x * vec4f(unpack4xI8(w.a.z)) - w.s.y, w.s.x * vec4f(unpack4xI8(w.a.w)) - w.s.y,
    w.t.x * vec4f(unpack4xI8(w.b.x)) - w.t.y, w.t.x * vec4f(unpack4xI8(w.b.y)) - w.t.y,
    w.t.x * vec4f(unpack4xI8(w.b.z)) - w.t.y, w.t.x * vec4f(unpack4xI8(w.b.w)) - w.t.y);
}

fn meet(w: Group, x: Bytes) -> f32 {
  let first = x.s.x * bytes_dot(x.a, vec4u(0x01010101)); // the same for every row
  return x.s.x * (w.s.x * bytes_dot(w.a, x.a) + w.t.x * bytes_dot(w.b, x.b)) - (w.s.y * first + w.t.y * (x.s.y - first));
}
