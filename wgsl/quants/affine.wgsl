// Types whose group is 32 small integers q, each standing for q * s.x - s.y; the last 16 with t in place of s where
// W_HALVES. The fragment gives w_integers; here is what the kernels make of it.
struct Integers {
  a: vec4u, // a byte each
  b: vec4u,
  s: vec2f,
  t: vec2f,
}

fn w_group(row: u32, g: u32) -> array<vec4f, 8> {
  let q = w_integers(row, g);
  return array(
    q.s.x * vec4f(unpack4xU8(q.a.x)) - q.s.y, q.s.x * vec4f(unpack4xU8(q.a.y)) - q.s.y,
    q.s.x * vec4f(unpack4xU8(q.a.z)) - q.s.y, q.s.x * vec4f(unpack4xU8(q.a.w)) - q.s.y,
    q.t.x * vec4f(unpack4xU8(q.b.x)) - q.t.y, q.t.x * vec4f(unpack4xU8(q.b.y)) - q.t.y,
    q.t.x * vec4f(unpack4xU8(q.b.z)) - q.t.y, q.t.x * vec4f(unpack4xU8(q.b.w)) - q.t.y);
}

fn dot_bytes(q: vec4u, x: vec4u) -> i32 {
  return dot4I8Packed(q.x, x.x) + dot4I8Packed(q.y, x.y) + dot4I8Packed(q.z, x.z) + dot4I8Packed(q.w, x.w);
}

// The group's dot product with 32 signed bytes (xa, xb) of scale xd, whose sum times xd is xsum.
fn w_dot(row: u32, g: u32, xa: vec4u, xb: vec4u, xd: f32, xsum: f32) -> f32 {
  let q = w_integers(row, g);
  if (W_HALVES) {
    let first = xd * f32(dot_bytes(vec4u(0x01010101), xa));
    return xd * (q.s.x * f32(dot_bytes(q.a, xa)) + q.t.x * f32(dot_bytes(q.b, xb))) - q.s.y * first - q.t.y * (xsum - first);
  }
  return xd * q.s.x * f32(dot_bytes(q.a, xa) + dot_bytes(q.b, xb)) - q.s.y * xsum;
}
