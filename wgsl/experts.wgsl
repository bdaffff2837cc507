// Products of each token with the matrices of its experts; W is (experts x ROWS, COLS).
// COMBINE 0: y[m, k] = W[expert k of m] x[m]; grid (ROWS / TR, USED, tokens).
// COMBINE 1: y[m] += sum over k of weight[m, k] * W[expert k of m] x[m, k]; grid (ROWS / TR, 1, tokens).
#param QUANT // fragment of wgsl/quants that reads W
#param COLS // columns of W
#param ROWS // rows of one expert
#param USED // experts of a token
#param COMBINE
#param BIAS // 1: each row of W has a bias
#param TK // threads that share a row
#param TR // rows of a workgroup

struct Params {
  first: u32, // first row of this part of W
  count: u32, // rows of this part
  row0: u32, // column of y for row 0
  y_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<vec4f>; // (n, COLS padded to 32); COMBINE: (n, USED, COLS padded to 32)
@bind var<storage, read> chosen: array<u32>; // (n, USED)
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
#if COMBINE
@bind var<storage, read> weights: array<f32>; // (n, USED)
#endif
#if BIAS
@bind var<storage, read> bias: array<f32>; // (experts, ROWS padded to 32)
#endif
@bind var<storage, read_write> y: array<f32>;

var<workgroup> sums: array<f32, TR * TK>;

fn bias_of(expert: u32, row: u32, tk: u32) -> f32 { // added by one of the row's threads
#if BIAS
  return select(0.0, bias[expert * ((ROWS + 31u) / 32u * 32u) + row], tk == 0u);
#else
  return 0.0;
#endif
}

fn product(row: u32, x0: u32, tk: u32) -> f32 { // this thread's part of the dot product
  var acc = 0.0;
  for (var g = tk; g < W_GROUPS; g += TK) {
    let w = w_group(row, g);
    for (var i = 0u; i < 8u; i++) {
      var v = x[x0 + g * 8u + i];
      if (COLS % 32u != 0u) { // the padding's contents are undefined
        v = select(vec4f(0), v, 32u * g + 4u * i + vec4u(0, 1, 2, 3) < vec4u(COLS));
      }
      acc += dot(w[i], v);
    }
  }
  return acc;
}

@compute @workgroup_size(TK, TR)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_id) id: vec3u) {
  let row = wid.x * TR + id.y;
  let m = wid.z;
  var sum = 0.0;
  var in_part = false; // whether this part of W has the row
#if COMBINE
  for (var k = 0u; k < USED; k++) {
    let expert = chosen[m * USED + k];
    let at = expert * ROWS + row - p.first;
    if (row < ROWS && at < p.count) {
      let y = product(at, (m * USED + k) * W_GROUPS * 8u, id.x) + bias_of(expert, row, id.x);
      sum += weights[m * USED + k] * y;
      in_part = true;
    }
  }
#else
  let slot = m * USED + wid.y;
  let at = chosen[slot] * ROWS + row - p.first;
  if (row < ROWS && at < p.count) {
    sum = product(at, m * W_GROUPS * 8u, id.x) + bias_of(chosen[slot], row, id.x);
    in_part = true;
  }
#endif
  let t = id.y * TK;
  sums[t + id.x] = sum;
  for (var width = TK / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (id.x < width) {
      sums[t + id.x] += sums[t + id.x + width];
    }
  }
  if (id.x == 0u && in_part) {
#if COMBINE
    y[m * p.y_stride + p.row0 + row] += sums[t];
#else
    y[slot * p.y_stride + p.row0 + row] = sums[t];
#endif
  }
}
