// Soft cap: cap * tanh(x / cap). The clamp changes nothing in f32; without it, some drivers' tanh overflows.
fn capped(x: f32, cap: f32) -> f32 {
  return cap * tanh(clamp(x / cap, -15.0, 15.0));
}
