// 32 numbers q, a byte each in eight words, as q * s.x - s.y; the last 16 with t in place of s.
fn affine(a: vec4u, b: vec4u, s: vec2f, t: vec2f) -> array<vec4f, 8> {
  return array(
    s.x * vec4f(unpack4xU8(a.x)) - s.y, s.x * vec4f(unpack4xU8(a.y)) - s.y,
    s.x * vec4f(unpack4xU8(a.z)) - s.y, s.x * vec4f(unpack4xU8(a.w)) - s.y,
    t.x * vec4f(unpack4xU8(b.x)) - t.y, t.x * vec4f(unpack4xU8(b.y)) - t.y,
    t.x * vec4f(unpack4xU8(b.z)) - t.y, t.x * vec4f(unpack4xU8(b.w)) - t.y);
}
