// rope_append.wgsl with an RMS norm of queries and keys before the rotation: a workgroup a head, a thread a quad of rows.
// The rows of each token lie in x, stacked; its queries go to y.
#param HEAD_DIM
#param ROPE_DIM
#param NEOX
#param WG // a power of two, at least HEAD_DIM / 4
#param WIDE // 1: the norm is of all queries, or keys, at once; 0: of each head
#param SG

struct Params {
  q_rows: u32,
  kv_rows: u32,
  rope_scale: f32, // of the rotated length (YaRN), else 1
  x_stride: u32,
  y_stride: u32,
  eps: f32,
}
#include "state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
@bind var<storage, read> norm: array<f32>; // queries' weights, keys' weights
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)
#include "rope.wgsl"
#include "reduce.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  let head = wid.x * HEAD_DIM;
  let x0 = m * p.x_stride;
  let key = head >= p.q_rows;
  var first = head; // of the rows that are normalised together
  var count = HEAD_DIM;
  var weights = select(0u, HEAD_DIM, key);
#if WIDE
  first = select(0u, p.q_rows, key);
  count = select(p.q_rows, p.kv_rows, key);
  weights = head;
#endif
  var sum = 0.0;
  if (head < p.q_rows + p.kv_rows) {
    for (var i = t; i < count; i += WG) {
      let v = x[x0 + first + i];
      sum += v * v;
    }
  }
  let scale = inverseSqrt(workgroup_sum(sum, t) / f32(count) + p.eps);
  if (t >= QUADS) {
    return;
  }
  let i = head + 4u * t;
  let a = rope_row(i);
  let b = rope_row(i + 2u);
  var v = vec4f(x[x0 + a], x[x0 + a + 1u], x[x0 + b], x[x0 + b + 1u]);
  if (head < p.q_rows + p.kv_rows) {
    let wa = weights + a - head;
    let wb = weights + b - head;
    v *= scale * vec4f(norm[wa], norm[wa + 1u], norm[wb], norm[wb + 1u]);
  }
  rope_store(i / 4u, v, state.pos + m, m * p.y_stride);
}
