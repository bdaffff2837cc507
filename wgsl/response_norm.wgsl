// y[m, c] = x[m, c] * (1 + factor[c] * length[c] / mean(length)) + bias[c]: a global response norm (Woo et al. 2023).
// Grid (tokens), a workgroup per row.
#param COLS
#param WG
#param SG
#param Y16 // 1: y is f16

struct Params {
  least: f32, // of the mean
  x_stride: u32,
  y_stride: u32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
@bind var<storage, read> lengths: array<f32>; // (COLS)
@bind var<storage, read> terms: array<f32>; // (2 * COLS): the factors, then the bias
#include "lib/result.wgsl"
#include "lib/reduce.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  var total = 0.0;
  for (var c = t; c < COLS; c += WG) {
    total += lengths[c];
  }
  let mean = max(workgroup_sum(total, t) / f32(COLS), p.least);
  for (var c = t; c < COLS; c += WG) {
    let v = x[wid.x * p.x_stride + c];
    y[wid.x * p.y_stride + c] = Value(fma(v, 1.0 + terms[c] * lengths[c] / mean, terms[COLS + c]));
  }
}
