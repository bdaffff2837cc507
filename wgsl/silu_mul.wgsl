// y[m, i] = silu(x[m, i]) * x[m, i + COLS]: the gate of a batch whose gate and up rows are stacked.
#param COLS

struct Params {
  x_stride: u32,
  y_stride: u32,
}
#include "state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>;
@bind var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  if (m >= state.n || id.x >= COLS) {
    return;
  }
  let gate = x[m * p.x_stride + id.x];
  y[m * p.y_stride + id.x] = gate / (1.0 + exp(-gate)) * x[m * p.x_stride + COLS + id.x];
}
