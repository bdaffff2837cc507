// A group of activations, rounded to signed bytes: s.x is their scale, s.y the sum of what they stand for. Weights meet
// them in two steps, so that a kernel can have loads on their way while it does something else: w_fetch takes what lies
// in memory, w_meet makes a dot product of it. A fragment that works on several groups at once says so in quants.py.
struct Bytes {
  a: vec4u, // the first 16
  b: vec4u,
  s: vec2f,
}

fn bytes_dot(a: vec4u, b: vec4u) -> f32 {
  return f32(dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w));
}
