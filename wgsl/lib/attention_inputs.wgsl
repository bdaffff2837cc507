// Bindings and cache reads of attention.wgsl and attention_matrix.wgsl.
struct Params {
  scale: f32,
  q_stride: u32, // floats between tokens of q
  n_head_kv: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> q: array<vec4f>;
#include "lib/kv_cache.wgsl"
#if SINKS
@bind var<storage, read> sinks: array<f32>; // (n_head)
#endif
#if SOFT_CAP
#include "lib/soft_cap.wgsl"
#endif

const VECS = HEAD_DIM / 4u;

// Four dimensions, from 4 * c on, of the key or value at position s; zeros from position `end` on.
fn cached_vector(values: bool, s: u32, end: u32, head: u32, c: u32) -> vec4f {
  if (s >= end) {
    return vec4f(0);
  }
  let at = (cached_row(s, state.seq) * p.n_head_kv + head) * VECS + c;
  if (values) {
    return cached_value(at, state.seq);
  }
  return cached_key(at, state.seq);
}
