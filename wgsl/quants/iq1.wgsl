// The numbers of the IQ1 types: codes 0, 1, 2 stand for -1, 0, 1, and all eight of a pattern are shifted by an eighth.
fn iq1_numbers(byte: u32, d: f32, shift: f32) -> vec4f {
  return d * (vec4f(grid_pairs(byte)) - 1.0 + shift);
}
