// y[m] = the mean of the token's COUNT stored streams and of x[m], with weights by softmax. A stream's score is the product
// of its RMS norm with `scores`. Grid (tokens), a workgroup for each.
#param COUNT
#param COLS // columns of a stream
#param WG
#param SG

struct Params {
  eps: f32,
  stored_stride: u32,
  stride: u32, // of x and y
}
@bind var<uniform> p: Params;
@bind var<storage, read> scores: array<f32>; // (COLS)
@bind var<storage, read> stored: array<f32>; // (n, streams, COLS)
@bind var<storage, read> x: array<f32>; // (n, COLS)
@bind var<storage, read_write> y: array<f32>; // (n, COLS)
#include "lib/reduce.wgsl"

var<workgroup> weights: array<f32, COUNT + 1>;

fn value(m: u32, stream: u32, col: u32) -> f32 {
  if (stream < COUNT) {
    return stored[m * p.stored_stride + stream * COLS + col];
  }
  return x[m * p.stride + col];
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.x;
  for (var s = 0u; s <= COUNT; s++) {
    var squares = 0.0;
    var product = 0.0;
    for (var i = t; i < COLS; i += WG) {
      let v = value(m, s, i);
      squares += v * v;
      product += v * scores[i];
    }
    squares = workgroup_sum(squares, t);
    product = workgroup_sum(product, t);
    if (t == 0u) {
      weights[s] = product * inverseSqrt(squares / f32(COLS) + p.eps);
    }
  }
  if (t == 0u) {
    var top = weights[COUNT];
    for (var s = 0u; s < COUNT; s++) {
      top = max(top, weights[s]);
    }
    var total = 0.0;
    for (var s = 0u; s <= COUNT; s++) {
      weights[s] = exp(weights[s] - top);
      total += weights[s];
    }
    for (var s = 0u; s <= COUNT; s++) {
      weights[s] /= total;
    }
  }
  workgroupBarrier();
  for (var i = t; i < COLS; i += WG) {
    var sum = 0.0;
    for (var s = 0u; s <= COUNT; s++) {
      sum += weights[s] * value(m, s, i);
    }
    y[m * p.stride + i] = sum;
  }
}
