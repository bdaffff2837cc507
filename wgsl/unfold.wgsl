// y[m, c * TAPS + t] = weight[m, t] * x[id[m, t], c]: the input of a convolution as rows of a matrix (im2col), one row of x for
// each of its kernel's TAPS places. A tap of weight 0 is outside of the input. Grid (COLS * TAPS / THREADS, tokens).
#param COLS // columns of x
#param TAPS
#param Y16 // 1: y is f16
#param THREADS

struct Params {
  x_stride: u32,
  y_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> taps: array<vec2u>; // (n, TAPS): row of x, bits of its f32 weight
@bind var<storage, read> x: array<f32>; // (rows, x_stride)
#include "lib/result.wgsl"

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.n || id.x >= COLS * TAPS) {
    return;
  }
  let tap = taps[id.y * TAPS + id.x % TAPS];
  var v = 0.0;
  if (tap.y != 0u) {
    v = bitcast<f32>(tap.y) * x[tap.x * p.x_stride + id.x / TAPS];
  }
  y[id.y * p.y_stride + id.x] = Value(v);
}
