// Layout of one layer's KV cache: (sequences, KV_ROWS, n_head_kv, HEAD_DIM).
#param KV // element type: "f16", "f32", or "q8_0": per sequence all rows' bytes, then an f32 scale per group of 32
#param KV_ROWS // rows of a sequence
#param RING // rows of a ring, for a layer with a sliding window: position s is in row s % RING; 0: a row per position

// Row that holds position s of a sequence.
fn cached_row(s: u32, seq: u32) -> u32 {
#if RING
  return seq * KV_ROWS + s % RING;
#else
  return seq * KV_ROWS + s;
#endif
}
#if KV == "q8_0"

// Index of the word with the four bytes of vector `at` of the cache. `at` does not count scales, so those of earlier
// sequences are added.
fn word_at(at: u32, seq: u32) -> u32 {
  return at + seq * KV_ROWS * (p.n_head_kv * HEAD_DIM / 32u);
}

// Index of the word with the scale of vector `at`, after the bytes of its sequence.
fn scale_at(at: u32, seq: u32) -> u32 {
  return at / 8u + (seq + 1u) * KV_ROWS * p.n_head_kv * (HEAD_DIM / 4u);
}
#endif
