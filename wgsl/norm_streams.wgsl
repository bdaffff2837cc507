// y[m, s] = scale * x[m, s] / rms(x[m, s]) * norm[s]: the RMS norm of each of the token's residual streams, with weights of
// its own. Grid (tokens, streams), a workgroup for each.
#param COLS // columns of a stream
#param WG
#param SG

struct Params {
  scale: f32,
  eps: f32,
  x_stride: u32,
  y_stride: u32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> norm: array<f32>; // (streams, COLS)
@bind var<storage, read> x: array<f32>; // (n, streams, COLS)
@bind var<storage, read_write> y: array<f32>; // (n, streams, COLS)
#include "lib/reduce.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let first = wid.y * COLS;
  let at = wid.x * p.x_stride + first;
  var squares = 0.0;
  for (var i = t; i < COLS; i += WG) {
    squares += x[at + i] * x[at + i];
  }
  let factor = p.scale * inverseSqrt(workgroup_sum(squares, t) / f32(COLS) + p.eps);
  for (var i = t; i < COLS; i += WG) {
    y[wid.x * p.y_stride + first + i] = x[at + i] * factor * norm[first + i];
  }
}
