// One f16 scale per group, two in a word.
@bind var<storage, read> w_d: array<u32>;

fn w_scale(group: u32) -> f32 {
  let pair = unpack2x16float(w_d[group / 2u]);
  return select(pair.x, pair.y, (group & 1u) == 1u);
}
