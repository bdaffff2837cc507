// The adapters' scales, and the sequence and position of each token.
#param ADAPTERS // of the plan
#param LAST // 1: the batch's last token only, which is row 0 of h and of the product

@bind var<storage, read> scales: array<vec2f>; // (sequences, ADAPTERS): scale, and the first position where it counts

// Index of row m's token in the batch.
fn token_of(m: u32) -> u32 {
#if LAST
  return count() - 1u;
#else
  return m;
#endif
}

fn is_row(m: u32) -> bool {
#if LAST
  return m == 0u;
#else
  return m < count();
#endif
}

// Where row m's token stands.
struct Place {
  seq: u32,
  pos: f32,
  exists: bool,
}

fn place_of(m: u32) -> Place {
  let token = token_of(m);
  return Place(seq_of(token), f32(pos_of(token)), is_row(m));
}
