// Attention of each row to all rows, or to those of its block, with a key for each distance and two biases of the queries
// (Dai et al. 2019), where `span` rows see each other:
//   y[m] = softmax over j of (((q[m] + u) * k[j] + (q[m] + v) * relative[span - 1 + j - m]) * scale) value[j]
// x has queries, keys and values beside each other. Grid (tiles of ROWS rows, heads). A thread has a key of a tile of WG
// keys; the softmax is a running one (Dao et al. 2022).
#param HEADS
#param HEAD_DIM // a multiple of 4
#param BLOCK // rows of a block, a multiple of ROWS; 0: all rows are one
#param ROWS // queries of a workgroup, which share the loads of keys and values
#param Y16 // 1: y is f16
#param WG

struct Params {
  scale: f32,
  x_stride: u32,
  relative_stride: u32,
  y_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<vec4f>; // (n, x_stride)
@bind var<storage, read> relative: array<vec4f>; // (2 span - 1, relative_stride): of keys from span - 1 rows before to span - 1 after
@bind var<storage, read> biases: array<f32>; // u, then v, each (HEADS * HEAD_DIM)
#include "lib/result.wgsl"

const VECS = HEAD_DIM / 4u;
const COLS = HEADS * VECS;
const ITEMS = (ROWS * VECS + WG - 1u) / WG; // vectors of results that a thread sums
var<workgroup> q_content: array<vec4f, ROWS * VECS>;
var<workgroup> q_distance: array<vec4f, ROWS * VECS>;
var<workgroup> scores: array<f32, ROWS * WG>;
var<workgroup> row_max: array<f32, ROWS>;
var<workgroup> row_sum: array<f32, ROWS>;
var<workgroup> row_rescale: array<f32, ROWS>;

fn bias(first: u32) -> vec4f {
  return vec4f(biases[first], biases[first + 1u], biases[first + 2u], biases[first + 3u]);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m0 = wid.x * ROWS;
  let n = state.n;
  if (m0 >= n) {
    return;
  }
#if BLOCK
  let span = u32(BLOCK);
  let begin = m0 / span * span;
  let end = min(n, begin + span);
#else
  let span = n;
  let begin = 0u;
  let end = n;
#endif
  let head = wid.y * VECS;
  let stride = p.x_stride / 4u;
  for (var i = t; i < ROWS * VECS; i += WG) {
    let d = head + i % VECS;
    let q = x[min(m0 + i / VECS, n - 1u) * stride + d];
    q_content[i] = (q + bias(4u * d)) * p.scale;
    q_distance[i] = (q + bias(4u * (COLS + d))) * p.scale;
  }
  if (t < ROWS) {
    row_max[t] = -1e30;
    row_sum[t] = 0.0;
  }
  workgroupBarrier();
  var sums = array<vec4f, ITEMS>();
  for (var j0 = begin; j0 < end; j0 += WG) {
    let j = min(j0 + t, end - 1u);
    var dots = array<f32, ROWS>(); // explicit zeros: SwiftShader keeps the last iteration's values otherwise
    for (var d = 0u; d < VECS; d++) {
      let k = x[j * stride + COLS + head + d];
      for (var r = 0u; r < ROWS; r++) {
        let distance = span - 1u + j - min(m0 + r, end - 1u);
        dots[r] += dot(q_content[r * VECS + d], k)
          + dot(q_distance[r * VECS + d], relative[distance * (p.relative_stride / 4u) + head + d]);
      }
    }
    for (var r = 0u; r < ROWS; r++) {
      scores[r * WG + t] = select(-1e30, dots[r], j0 + t < end);
    }
    workgroupBarrier();
    if (t < ROWS) {
      var top = row_max[t];
      for (var i = 0u; i < WG; i++) {
        top = max(top, scores[t * WG + i]);
      }
      row_rescale[t] = exp(row_max[t] - top);
      var sum = row_sum[t] * row_rescale[t];
      for (var i = 0u; i < WG; i++) {
        let e = exp(scores[t * WG + i] - top);
        scores[t * WG + i] = e;
        sum += e;
      }
      row_max[t] = top;
      row_sum[t] = sum;
    }
    workgroupBarrier();
    for (var item = 0u; item < ITEMS; item++) {
      let i = min(t + item * WG, ROWS * VECS - 1u);
      var sum = sums[item] * row_rescale[i / VECS];
      for (var key = 0u; key < min(WG, end - j0); key++) {
        sum = fma(vec4f(scores[i / VECS * WG + key]), x[(j0 + key) * stride + 2u * COLS + head + i % VECS], sum);
      }
      sums[item] = sum;
    }
    workgroupBarrier();
  }
  for (var item = 0u; item < ITEMS; item++) {
    let i = t + item * WG;
    let m = m0 + i / VECS;
    if (i < ROWS * VECS && m < n) {
      let result = sums[item] / row_sum[i / VECS];
      for (var e = 0u; e < 4u; e++) {
        y[m * p.y_stride + 4u * (head + i % VECS) + e] = Value(result[e]);
      }
    }
  }
}
