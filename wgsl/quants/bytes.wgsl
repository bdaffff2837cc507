// A group of 32 activations, rounded to signed bytes. A fragment multiplies weights with them in two steps, so that a kernel
// can have many loads in flight: w_fetch loads the stored bits, w_dot computes the dot product. quants.py defines how many
// groups a fragment reads at a time. It adds two products by fma(): otherwise the compiler chooses which one it rounds
// first, perhaps not the same one in matvec.wgsl and matvec_small_batch.wgsl.
struct Bytes {
  a: vec4u, // elements 0 to 15
  b: vec4u, // elements 16 to 31
  s: vec2f, // scale; sum of the group's dequantised elements
}

fn int_dot(a: vec4u, b: vec4u) -> i32 {
  return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}

// Of a whole group with x, each product added to the sum so far: GPUs do both in one operation.
fn group_int_dot(a: vec4u, b: vec4u, x: Bytes) -> i32 {
  let sum = int_dot(a, x.a) + dot4I8Packed(b.x, x.b.x) + dot4I8Packed(b.y, x.b.y);
  return sum + dot4I8Packed(b.z, x.b.z) + dot4I8Packed(b.w, x.b.w);
}

fn bytes_dot(a: vec4u, b: vec4u) -> f32 {
  return f32(int_dot(a, b));
}

// A group of 32 weights as signed bytes q: an element is q * s.x - s.y in the first half, q * t.x - t.y in the second. Every
// fragment defines w_load(row, g), which unpacks one.
struct Group {
  a: vec4u, // elements 0 to 15
  b: vec4u, // elements 16 to 31
  s: vec2f, // scale and minimum of the first half
  t: vec2f, // scale and minimum of the second half
}
