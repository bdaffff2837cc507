// Values kept softly between -cap and cap. The clamp changes nothing in f32; some drivers' tanh overflows without it.
fn capped(x: f32, cap: f32) -> f32 {
  return cap * tanh(clamp(x / cap, -15.0, 15.0));
}
