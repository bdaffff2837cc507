// Splits the positions that a tile of tokens sees among SPLIT workgroups, and where each leaves its results.
#param SPLIT
#param TS // positions of a tile
#param VALUE_DIM

// The first position that a tile loads, and the positions of one split: whole tiles, spread as evenly as possible.
fn splits_of(seen: vec2u) -> vec2u {
  let begin = seen.x / TS * TS;
  let tiles = (seen.y - begin + TS - 1u) / TS;
  return vec2u(begin, (tiles + SPLIT - 1u) / SPLIT * TS);
}

// Index in `sums` of what a split has of a head of token m: (splits, n, heads, VALUE_DIM + 2) weighted sums of values,
// the reference of the weights, and their total.
fn sums_at(split: u32, m: u32, n: u32, head: u32, heads: u32) -> u32 {
  return ((split * n + m) * heads + head) * (VALUE_DIM + 2u);
}
