// The input of channel i that is k + 1 tokens before token m, whose run begins with token `begin`; 0 before the beginning of
// its sequence.
fn input_before(m: u32, begin: u32, k: u32, i: u32) -> f32 {
  if (offset_of(m) <= k) {
    return 0.0;
  }
  if (m - begin > k) {
    return x[(m - k - 1u) * p.x_stride + p.first + i];
  }
  let half = half_after(pos_of(begin) - 1u, seq_of(m));
  return windows[(half * TAPS + k - (m - begin)) * CHANNELS + i];
}
