// The numbers of the IQ2 types: codes 0, 1, 2 stand for 8, 25, 43.
fn iq2_numbers(byte: u32) -> vec4f {
  let c = grid_pairs(byte);
  return vec4f(c * 17u + (c >> vec4u(1)) + 8u);
}
