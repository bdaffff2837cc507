// Bindings and cache reads of attention.wgsl and attention_matrix.wgsl.
struct Params {
  scale: f32,
  q_stride: u32, // floats between tokens of q
  n_head_kv: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: States;
@bind var<storage, read> q: array<vec4f>;
#include "lib/kv_cache.wgsl"
#if SINKS
@bind var<storage, read> sinks: array<f32>; // (n_head)
#endif
#if SOFT_CAP
#include "lib/soft_cap.wgsl"
#endif

const VECS = HEAD_DIM / 4u;

// Page that holds position s of the batch's sequence. Tiles divide pages, so it holds a whole tile.
fn tile_page(s: u32) -> u32 {
  return page_of(s, state.tokens[0].seq);
}

// Four dimensions, from 4 * c on, of the key or value at position s, which is in `page`; zeros from position `end` on.
fn cached_vector(values: bool, page: u32, s: u32, end: u32, head: u32, c: u32) -> vec4f {
  if (s >= end) {
    return vec4f(0);
  }
  let at = (row_in(page, s) * p.n_head_kv + head) * VECS + c;
  if (values) {
    return cached_value(at, page);
  }
  return cached_key(at, page);
}
