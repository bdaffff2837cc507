// Groups of float weights, which take LOADS loads each.

fn w_group(row: u32, g: u32) -> array<vec4f, 8> {
  return w_floats((row * W_GROUPS + g) * LOADS, 1u);
}

fn w_strided(row: u32, g: u32) -> array<vec4f, 8> { // see lib/strided.wgsl
  return w_floats(row * W_GROUPS * LOADS + g, W_GROUPS);
}
#if HALVES
alias Held = array<vec4<f16>, 8>; // see quants/halves.wgsl

fn w_held(row: u32, g: u32) -> Held {
  return w_halves(row, g);
}

fn held_halves(w: Held) -> array<vec4<f16>, 8> {
  return w;
}
#endif
