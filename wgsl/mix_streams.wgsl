// y[m] = the sum of the token's streams x[m, s], each value times the sigmoid of its gate. Grid (COLS / THREADS, tokens).
#param STREAMS
#param COLS // columns of a stream
#param THREADS

struct Params {
  x_stride: u32,
  gates_stride: u32,
  y_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>; // (n, STREAMS, COLS)
@bind var<storage, read> gates: array<f32>; // (n, STREAMS, COLS)
@bind var<storage, read_write> y: array<f32>; // (n, COLS)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  if (m >= state.n || id.x >= COLS) {
    return;
  }
  var sum = 0.0;
  for (var s = 0u; s < STREAMS; s++) {
    let at = s * COLS + id.x;
    sum += x[m * p.x_stride + at] / (1.0 + exp(-gates[m * p.gates_stride + at]));
  }
  y[m * p.y_stride + id.x] = sum;
}
