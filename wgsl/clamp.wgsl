// y[m, first on] = clamp(x[m], limits[1], limits[0]), column by column. Grid (COLS / THREADS, tokens).
#param COLS
#param IN_PLACE // 1: x is y
#param X16 // 1: x is f16
#param Y16 // 1: y is f16
#param THREADS

struct Params {
  x_stride: u32,
  y_stride: u32,
  first: u32, // first column of y
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
#if not IN_PLACE
#if X16
#param F16
@bind var<storage, read> x: array<f16>;
#else
@bind var<storage, read> x: array<f32>;
#endif
#endif
@bind var<storage, read> limits: array<f32>; // the largest value, the smallest
#include "lib/result.wgsl"

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y < state.n && id.x < COLS) {
    let at = id.y * p.y_stride + p.first + id.x;
#if IN_PLACE
    let v = f32(y[at]);
#else
    let v = f32(x[id.y * p.x_stride + id.x]);
#endif
    y[at] = Value(min(max(v, limits[1]), limits[0]));
  }
}
