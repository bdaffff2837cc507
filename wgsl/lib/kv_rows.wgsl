// Where things lie in the cache of one layer: rows of n_head_kv x HEAD_DIM values.
#param KV // "f16", "f32" or "q8_0": of each sequence, bytes of its rows, then the steps of their groups of 32
#param KV_ROWS // of a sequence
#param RING // rows of a layer that keeps only its window, position s in row s % RING; 0: a row for every position

// The row that a position of a sequence lies in.
fn cached_row(s: u32, seq: u32) -> u32 {
#if RING
  return seq * KV_ROWS + s % RING;
#else
  return seq * KV_ROWS + s;
#endif
}
#if KV == "q8_0"

// The word of the cache that holds the four values of vector `at` of a sequence's rows, behind the steps of the
// sequences before.
fn word_at(at: u32, seq: u32) -> u32 {
  return at + seq * KV_ROWS * (p.n_head_kv * HEAD_DIM / 32u);
}

fn step_at(at: u32, seq: u32) -> u32 {
  return at / 8u + (seq + 1u) * KV_ROWS * p.n_head_kv * (HEAD_DIM / 4u);
}
#endif
