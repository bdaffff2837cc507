// y[m, i] = activation(x[m, x_first + i / SPAN]) * up[m, first + i]. Grid (COLS / THREADS, tokens).
#param COLS // columns of y
#param ACTIVATION // see activation.wgsl
#param SPAN // columns that share a gate
#param UP16 // 1: `up` is f16
#param Y16 // 1: y is f16
#if UP16
#param F16
#endif
#param THREADS

struct Params {
  x_stride: u32,
  x_first: u32, // column of x
  up_stride: u32,
  first: u32, // column of `up`
  y_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>;
#if UP16
@bind var<storage, read> up: array<f16>;
#else
@bind var<storage, read> up: array<f32>;
#endif
#include "lib/result.wgsl"
#include "lib/activation.wgsl"

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y < state.n && id.x < COLS) {
    let other = f32(up[id.y * p.up_stride + p.first + id.x]);
    y[id.y * p.y_stride + id.x] = Value(gated(x[id.y * p.x_stride + p.x_first + id.x / SPAN], other));
  }
}
