// Attention of a row to itself and the WINDOW - 1 rows before it, with a key for each distance (Dai et al. 2019):
// y[m] = softmax over d < WINDOW of cap(q[m] * (k[m - d] + relative[d])) v[m - d], where q and k are scaled. x has queries, keys and
// values beside each other. A thread per row and head: there are few rows, and 12 distances. Grid (rows / THREADS, heads).
#param HEADS
#param HEAD_DIM
#param WINDOW // distances
#param SOFT_CAP // cap of the scores
#param Y16 // 1: y is f16
#param THREADS

struct Params {
  q_scale: f32,
  k_scale: f32,
  x_stride: u32,
  relative_stride: u32,
  y_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
@bind var<storage, read> relative: array<f32>; // (WINDOW, relative_stride)
@bind var<storage, read> factor: array<f32>; // (HEAD_DIM): of queries
#include "lib/result.wgsl"
#include "lib/soft_cap.wgsl"

const COLS = HEADS * HEAD_DIM;

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.x;
  let head = id.y * HEAD_DIM;
  if (m >= state.n) {
    return;
  }
  let count = min(WINDOW, m + 1u);
  var scores: array<f32, WINDOW>;
  var top = -1e30;
  for (var d = 0u; d < count; d++) {
    var sum = 0.0;
    for (var i = 0u; i < HEAD_DIM; i++) {
      let q = x[m * p.x_stride + head + i] * p.q_scale * factor[i];
      let k = x[(m - d) * p.x_stride + COLS + head + i] * p.k_scale + relative[d * p.relative_stride + head + i];
      sum = fma(q, k, sum);
    }
    scores[d] = capped(sum, SOFT_CAP);
    top = max(top, scores[d]);
  }
  var total = 0.0;
  for (var d = 0u; d < count; d++) {
    scores[d] = exp(scores[d] - top);
    total += scores[d];
  }
  for (var i = 0u; i < HEAD_DIM; i++) {
    var sum = 0.0;
    for (var d = 0u; d < count; d++) {
      sum = fma(scores[d], x[(m - d) * p.x_stride + 2u * COLS + head + i], sum);
    }
    y[m * p.y_stride + head + i] = Value(sum / total);
  }
}
