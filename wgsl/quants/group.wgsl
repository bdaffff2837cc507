// What most types have in common: a group is 32 numbers q, a signed byte each, that stand for q * s.x - s.y; the last 16
// have t in place of s. A fragment that includes this defines w_load; both ways to use a group follow from it.
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

fn group_dot(a: vec4u, b: vec4u) -> f32 {
  return f32(dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w));
}

// The group's dot product with 32 signed bytes (xa, xb) of scale xd, whose sum times xd is xsum.
fn w_dot(row: u32, g: u32, xa: vec4u, xb: vec4u, xd: f32, xsum: f32) -> f32 {
  let w = w_load(row, g);
  let first = xd * group_dot(xa, vec4u(0x01010101)); // the same for every row
  return xd * (w.s.x * group_dot(w.a, xa) + w.t.x * group_dot(w.b, xb)) - (w.s.y * first + w.t.y * (xsum - first));
}
