// Rotation (RoPE) of queries and keys; appends keys and values to the cache: matvec.wgsl's "qkv" epilogue for a batch. y
// stacks the q, k and v rows of each token; queries stay in place. Grid (quads of rows / THREADS, tokens).
#param HEAD_DIM
#param ROPE_DIM // leading dimensions of a head that are rotated
#param NEOX // 1: dimension i pairs with i + ROPE_DIM / 2; 0: with its neighbour
#param THREADS

struct Params {
  q_rows: u32,
  kv_rows: u32,
  rope_scale: f32, // factor on rotated queries and keys (YaRN), else 1
  y_stride: u32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)
#include "lib/rope.wgsl"

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let quad = id.x;
  let m = id.y;
  if (m >= count() || 4u * quad >= p.q_rows + 2u * p.kv_rows) {
    return;
  }
  let y0 = m * p.y_stride;
  let a = y0 + rope_row(4u * quad);
  let b = y0 + rope_row(4u * quad + 2u);
  rope_store(quad, vec4f(y[a], y[a + 1u], y[b], y[b + 1u]), rope_rotation(quad, m), stored_row(m), y0);
}
