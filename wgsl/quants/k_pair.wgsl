// Dot product of two groups of Q4_K or Q5_K (`low`, `high`) with two of activations. `s`: from k_scales_of_pair().
fn pair_dot(low: array<vec4u, 2>, high: array<vec4u, 2>, s: vec4f, x: array<Bytes, 2>) -> f32 {
  let first = f32(group_int_dot(low[0], low[1], x[0]));
  let second = f32(group_int_dot(high[0], high[1], x[1]));
  let minima = fma(s.z, x[0].s.y, s.w * x[1].s.y);
  return fma(s.x * x[0].s.x, first, fma(s.y * x[1].s.x, second, -minima));
}
