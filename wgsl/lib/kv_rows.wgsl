// Layout of one layer's KV cache: (pages, PAGE, n_head_kv, HEAD_DIM).
#param KV // element type: "f16", "f32", or "q8_0": per page all rows' bytes, then an f32 scale per group of 32
#include "lib/pages.wgsl"
#if KV == "q8_0"

// Index of the word with the four bytes of vector `at` of the cache, which is in `page`. `at` does not count scales, so
// those of earlier pages are added.
fn word_at(at: u32, page: u32) -> u32 {
  return at + page * PAGE * (p.n_head_kv * HEAD_DIM / 32u);
}

// Index of the word with the scale of vector `at`, after the bytes of its page.
fn scale_at(at: u32, page: u32) -> u32 {
  return at / 8u + (page + 1u) * PAGE * p.n_head_kv * (HEAD_DIM / 4u);
}
#endif
