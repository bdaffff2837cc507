// F32: a group is 32 f32.
@bind var<storage, read> w_qs: array<vec4f>;

fn w_group(row: u32, g: u32) -> array<vec4f, 8> {
  let at = (row * W_GROUPS + g) * 8u;
  return array(w_qs[at], w_qs[at + 1], w_qs[at + 2], w_qs[at + 3], w_qs[at + 4], w_qs[at + 5], w_qs[at + 6], w_qs[at + 7]);
}
#if HALVES

fn w_halves(row: u32, g: u32) -> array<vec4<f16>, 8> {
  let w = w_group(row, g);
  return array(
    vec4<f16>(w[0]), vec4<f16>(w[1]), vec4<f16>(w[2]), vec4<f16>(w[3]),
    vec4<f16>(w[4]), vec4<f16>(w[5]), vec4<f16>(w[6]), vec4<f16>(w[7]));
}
#endif
