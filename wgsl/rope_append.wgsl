// Rotation (RoPE) of queries and keys; appends keys and values to the cache: matvec.wgsl's "qkv" epilogue for a batch. y
// stacks the q, k and v rows of each token; queries stay in place. What adapters add is added first: LOW_RANK computes it,
// ADDED has it. Grid (quads of rows / THREADS, tokens).
#param HEAD_DIM
#param ROPE_DIM // leading dimensions of a head that are rotated
#param NEOX // 1: dimension i pairs with i + ROPE_DIM / 2; 0: with its neighbour
#param THREADS
#param LOW_RANK
#param ADDED

struct Params {
  q_rows: u32,
  kv_rows: u32,
  rope_scale: f32, // factor on rotated queries and keys (YaRN), else 1
  y_stride: u32,
#if LOW_RANK
  h_stride: u32,
#endif
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)
#if ADDED
@bind var<storage, read> added: array<f32>; // (n, y_stride)
#endif
#include "lib/rope.wgsl"
#if LOW_RANK
#param ADDS // "low_rank" or "low_rank_equal"
#include "lib/${ADDS}.wgsl"
#endif

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) t: u32) {
  let quad = id.x;
  let m = id.y;
  let rotation = rope_rotation(quad, m); // early: its loads do not wait for what adapters add
  let row = stored_row(m);
#if LOW_RANK
  low_rank_load(m, t);
#endif
  if (m >= count() || 4u * quad >= p.q_rows + 2u * p.kv_rows) {
    return;
  }
  let y0 = m * p.y_stride;
  let rows = vec2u(rope_row(4u * quad), rope_row(4u * quad + 2u));
  let a = y0 + rows.x;
  let b = y0 + rows.y;
  var v = vec4f(y[a], y[a + 1u], y[b], y[b + 1u]);
#if ADDED
  v += vec4f(added[a], added[a + 1u], added[b], added[b + 1u]);
#endif
#if LOW_RANK
  v += low_rank_at(m, vec4u(rows.x, rows.x + 1u, rows.y, rows.y + 1u));
#endif
  rope_store(quad, v, rotation, row, y0);
}
