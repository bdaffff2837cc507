// y[m, i] = activation(x[m, i]) of a batch; GATED: * x[m, i + COLS], where gate and up rows are stacked.
#param COLS
#param ACTIVATION
#param GATED

struct Params {
  x_stride: u32,
  y_stride: u32,
}
#include "state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>;
@bind var<storage, read_write> y: array<f32>;
#include "activation.wgsl"

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  if (m >= state.n || id.x >= COLS) {
    return;
  }
  let at = m * p.x_stride + id.x;
#if GATED
  y[m * p.y_stride + id.x] = activation(x[at]) * x[at + COLS];
#else
  y[m * p.y_stride + id.x] = activation(x[at]);
#endif
}
