// How the positions that a tile of tokens sees are divided among SPLIT workgroups, and where each writes its results.
#param SPLIT
#param TS // positions of a tile
#param VALUE_DIM

// The first position that a tile of tokens loads, and how many each split has: whole tiles of positions, divided evenly.
fn splits_of(seen: vec2u) -> vec2u {
  let begin = seen.x / TS * TS;
  let tiles = (seen.y - begin + TS - 1u) / TS;
  return vec2u(begin, (tiles + SPLIT - 1u) / SPLIT * TS);
}

// Where `sums` (splits, n, heads, VALUE_DIM + 2) has the results of a split for a head of token m: VALUE_DIM weighted sums
// of values, the reference of the weights, and the sum of the weights.
fn sums_at(split: u32, m: u32, n: u32, head: u32, heads: u32) -> u32 {
  return ((split * n + m) * heads + head) * (VALUE_DIM + 2u);
}
