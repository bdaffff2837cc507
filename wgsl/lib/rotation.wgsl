// Rotation of pairs of numbers by exact angles.

// (cos, sin) of an angle in units of 2^-32 turns. The built-in functions may err by 2^-11. Here the quadrant is exact. A
// Taylor polynomial, exact to the last bit, covers the rest of the angle (at most an eighth of a turn).
fn cos_sin(turns: u32) -> vec2f {
  let quadrant = (turns + (1u << 29u)) >> 30u;
  let r = f32(bitcast<i32>(turns - (quadrant << 30u))) * (6.283185307179586 / 4294967296.0);
  let r2 = r * r;
  let c = 1.0 + r2 * (-0.5 + r2 * (1.0 / 24.0 + r2 * (-1.0 / 720.0 + r2 * (1.0 / 40320.0))));
  let s = r * (1.0 + r2 * (-1.0 / 6.0 + r2 * (1.0 / 120.0 + r2 * (-1.0 / 5040.0 + r2 * (1.0 / 362880.0)))));
  let even = select(vec2f(c, s), vec2f(-s, c), (quadrant & 1u) == 1u);
  return select(even, -even, (quadrant & 2u) == 2u);
}

fn rotate(v: vec2f, cs: vec2f) -> vec2f {
  // by fma(), because a compiler may otherwise round the one or the other product first: kernels would differ
  return vec2f(fma(v.x, cs.x, -v.y * cs.y), fma(v.x, cs.y, v.y * cs.x));
}
