// F32: a group is 32 f32.
@bind var<storage, read> w_qs: array<vec4f>;

fn w_group(row: u32, g: u32) -> array<vec4f, 8> {
  let at = (row * W_GROUPS + g) * 8u;
  return array(w_qs[at], w_qs[at + 1], w_qs[at + 2], w_qs[at + 3], w_qs[at + 4], w_qs[at + 5], w_qs[at + 6], w_qs[at + 7]);
}
