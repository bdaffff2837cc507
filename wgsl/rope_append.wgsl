// The "qkv" epilogue of matvec.wgsl for a batch: y holds the stacked q, k and v rows of each token; queries are rotated
// in place, keys rotated and appended to the cache with the values. One thread a quad of rows.
#param HEAD_DIM
#param ROPE_DIM
#param NEOX

struct Params {
  q_rows: u32,
  kv_rows: u32,
  rope_scale: f32, // of the rotated length (YaRN), else 1
  y_stride: u32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)
#include "lib/rope.wgsl"

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let quad = id.x;
  let m = id.y;
  if (m >= count() || 4u * quad >= p.q_rows + 2u * p.kv_rows) {
    return;
  }
  let y0 = m * p.y_stride;
  let a = y0 + rope_row(4u * quad);
  let b = y0 + rope_row(4u * quad + 2u);
  rope_store(quad, vec4f(y[a], y[a + 1u], y[b], y[b + 1u]), rope_turns(quad, m), m, y0);
}
