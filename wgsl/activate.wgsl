// y[m, i] = activation(x[m, i]); GATED: activation(x[m, i]) * x[m, i + COLS], where x stacks gate and up rows.
// WEIGHTED: each row's gate is multiplied by a factor first. Grid (COLS / THREADS, tokens, rows of a token).
#param COLS // columns of y
#param ACTIVATION // see activation.wgsl
#param GATED
#param WEIGHTED
#param Y16 // 1: y is f16
#param THREADS

struct Params {
  x_stride: u32,
  y_stride: u32,
#if ACTIVATION == "xielu"
  alpha_n: f32,
  alpha_p: f32,
  beta: f32,
  eps: f32,
#endif
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>;
#if WEIGHTED
@bind var<storage, read> factors: array<f32>; // (n, rows of a token)
#endif
#include "lib/result.wgsl"
#include "lib/activation.wgsl"

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) wgs: vec3u) {
  if (id.y >= state.n || id.x >= COLS) {
    return;
  }
  let m = id.y * wgs.z + id.z;
  let at = m * p.x_stride + id.x;
#if WEIGHTED
  y[m * p.y_stride + id.x] = Value(gated(factors[m] * x[at], x[at + COLS]));
#else
#if GATED
  y[m * p.y_stride + id.x] = Value(gated(x[at], x[at + COLS]));
#else
  y[m * p.y_stride + id.x] = Value(activation(x[at]));
#endif
#endif
}
