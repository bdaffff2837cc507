// Products of each token with the matrices of the experts it goes to. W is (experts x ROWS, COLS). TK threads share a row.
// COMBINE 0: y[m, k, row] = W[expert k of m] x[m], grid (rows / TR, USED, n)
// COMBINE 1: y[m, row] += the sum over k of share k x W[expert k of m] x[m, k], grid (rows / TR, 1, n)
#param QUANT
#param COLS
#param ROWS // of one expert
#param USED
#param COMBINE
#param BIAS
#param TK
#param TR

struct Params {
  first: u32, // this part of W holds rows first .. first + count
  count: u32,
  row0: u32, // y's column of row 0
  y_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<vec4f>; // (n, COLS padded), or (n, USED, COLS padded)
@bind var<storage, read> chosen: array<u32>; // (n, USED)
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
#if COMBINE
@bind var<storage, read> weights: array<f32>; // (n, USED)
#endif
#if BIAS
@bind var<storage, read> bias: array<f32>; // (experts, ROWS padded)
#endif
@bind var<storage, read_write> y: array<f32>;

var<workgroup> sums: array<f32, TR * TK>;

fn bias_of(expert: u32, row: u32, tk: u32) -> f32 { // one of the row's threads adds it
#if BIAS
  return select(0.0, bias[expert * ((ROWS + 31u) / 32u * 32u) + row], tk == 0u);
#else
  return 0.0;
#endif
}

fn product(row: u32, x0: u32, tk: u32) -> f32 { // this thread's part
  var acc = 0.0;
  for (var g = tk; g < W_GROUPS; g += TK) {
    let w = w_group(row, g);
    for (var i = 0u; i < 8u; i++) {
      var v = x[x0 + g * 8u + i];
      if (COLS % 32u != 0u) { // what lies behind the row is not ours
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
  var mine = 0.0;
  var here = false; // whether the rows lie in this part
#if COMBINE
  for (var k = 0u; k < USED; k++) {
    let expert = chosen[m * USED + k];
    let at = expert * ROWS + row - p.first;
    if (row < ROWS && at < p.count) {
      let y = product(at, (m * USED + k) * W_GROUPS * 8u, id.x) + bias_of(expert, row, id.x);
      mine += weights[m * USED + k] * y;
      here = true;
    }
  }
#else
  let slot = m * USED + wid.y;
  let at = chosen[slot] * ROWS + row - p.first;
  if (row < ROWS && at < p.count) {
    mine = product(at, m * W_GROUPS * 8u, id.x) + bias_of(chosen[slot], row, id.x);
    here = true;
  }
#endif
  let t = id.y * TK;
  sums[t + id.x] = mine;
  for (var width = TK / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (id.x < width) {
      sums[t + id.x] += sums[t + id.x + width];
    }
  }
  if (id.x == 0u && here) {
#if COMBINE
    y[m * p.y_stride + p.row0 + row] += sums[t];
#else
    y[slot * p.y_stride + p.row0 + row] = sums[t];
#endif
  }
}
