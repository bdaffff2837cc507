// y[m] = softmax(x[m]). Rows are short, so each thread reads all of its row. Grid (COLS / THREADS, tokens).
#param COLS
#param Y16 // 1: y is f16
#param THREADS

struct Params {
  x_stride: u32,
  y_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>;
#include "lib/result.wgsl"

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.n || id.x >= COLS) {
    return;
  }
  let x0 = id.y * p.x_stride;
  var top = x[x0];
  for (var i = 1u; i < COLS; i++) {
    top = max(top, x[x0 + i]);
  }
  var sum = 0.0;
  for (var i = 0u; i < COLS; i++) {
    sum += exp(x[x0 + i] - top);
  }
  y[id.y * p.y_stride + id.x] = Value(exp(x[x0 + id.x] - top) / sum);
}
