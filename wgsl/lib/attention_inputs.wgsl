// Bindings and cache reads of attention.wgsl and attention_matrix.wgsl.
#param VALUE_DIM // dimensions of a value; HEAD_DIM are those of a key
#param NOPE // 0: keys and values are in the cache. Else the first NOPE dimensions of a key, and its value, are in `expanded`
#if NOPE
#param ROW // columns of the cache, which begin with the rest of the key, the same for all heads
#endif
struct Params {
  scale: f32,
  q_stride: u32, // floats between tokens of q
  y_stride: u32,
  n_head_kv: u32,
  head0: u32, // key/value head that the grid begins with
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: States;
#param Q16 // 1: q is f16
#if Q16
@bind var<storage, read> q: array<vec4<f16>>;
#else
@bind var<storage, read> q: array<vec4f>;
#endif
#include "lib/kv_cache.wgsl"
#if SINKS
@bind var<storage, read> sinks: array<f32>; // (n_head)
#endif
#if SOFT_CAP
#include "lib/soft_cap.wgsl"
#endif

#if NOPE
@bind var<storage, read> expanded: array<vec4<f16>>; // (positions, n_head_kv, NOPE + VALUE_DIM)
#endif
const VECS = HEAD_DIM / 4u;
const VALUE_VECS = VALUE_DIM / 4u;

// Page that holds position s of the batch's sequence. Tiles divide pages, so it holds a whole tile.
fn tile_page(s: u32) -> u32 {
  return page_of(s, state.tokens[0].seq);
}

// The last position to load, before `end`, of the tile that begins at position s. A segment's last page may have more
// positions than the segment, and those hold nothing of this batch.
fn last_filled(s: u32, end: u32) -> u32 {
#if PACKED and PREFIXES
  return min(end, state.tables[PREFIXES - PAGES + s / PAGE]) - 1u; // before the prefixes: the end of each page
#else
  return end - 1u;
#endif
}

#if NOPE
// Index of the first vector of a position's key or value.
fn expanded_at(values: bool, s: u32, head: u32) -> u32 {
  return (s * p.n_head_kv + head) * ((NOPE + VALUE_DIM) / 4u) + select(0u, NOPE / 4u, values);
}
#endif
