// y[m] = (norm(x[m]) + (r k u) v) * gate, for each head of COLS columns: the layer norm of the head, the sum of r k u, and
// the gate's activation. Each is left out where the model has none. Grid (tokens, heads), a workgroup for each.
#param COLS
#param HEADS
#param NORM
#param BONUS
#param GATE // "linear", "silu", "sigmoid" or "none"
#param WG
#param SG
#param Y16 // 1: y is f16
#if Y16
#param F16
#endif

struct Params {
  x_stride: u32,
  row_stride: u32, // floats between tokens of `rows`
  receptance: u32, // columns of `rows`
  key: u32,
  value: u32,
  gate_stride: u32,
  y_stride: u32,
  eps: f32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
#if NORM or BONUS
@bind var<storage, read> factors: array<f32>; // NORM: its weights and biases; BONUS: u; (HEADS, COLS) each
#endif
#if BONUS
@bind var<storage, read> rows: array<f32>; // (n, row_stride)
#endif
#if GATE != "none"
@bind var<storage, read> gate: array<f32>; // (n, gate_stride)
#endif
#include "lib/result.wgsl"
#if NORM or BONUS
#include "lib/reduce.wgsl"
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.x;
  let column = wid.y * COLS;
#if NORM
  var total = 0.0;
  for (var i = t; i < COLS; i += WG) {
    total += x[m * p.x_stride + column + i];
  }
  let mean = workgroup_sum(total, t) / f32(COLS);
  var squares = 0.0;
  for (var i = t; i < COLS; i += WG) {
    let v = x[m * p.x_stride + column + i] - mean;
    squares += v * v;
  }
  let scale = inverseSqrt(workgroup_sum(squares, t) / f32(COLS) + p.eps);
#endif
#if BONUS
  var product = 0.0;
  let row = m * p.row_stride + column;
  for (var i = t; i < COLS; i += WG) {
    product += rows[row + p.receptance + i] * rows[row + p.key + i] * factors[2u * NORM * HEADS * COLS + column + i];
  }
  let bonus = workgroup_sum(product, t);
#endif
  for (var i = t; i < COLS; i += WG) {
    var v = x[m * p.x_stride + column + i];
#if NORM
    v = (v - mean) * scale * factors[column + i] + factors[HEADS * COLS + column + i];
#endif
#if BONUS
    v += bonus * rows[row + p.value + i];
#endif
#if GATE != "none"
    let g = gate[m * p.gate_stride + column + i];
#if GATE == "linear"
    v *= g;
#else
#if GATE == "silu"
    v *= g / (1.0 + exp(-g));
#else
    v /= 1.0 + exp(-g);
#endif
#endif
#endif
    y[m * p.y_stride + column + i] = Value(v);
  }
}
