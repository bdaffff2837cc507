// y[m, y_first + part * y_step, ...] = scale * x[m, x_first + part * x_step, ...] for each part of a row.
// ADD: y[m] += ... LIKE: a part has the Euclidean length of like[m], times the scale; zeros stay zeros.
// Grid (tokens, parts), a workgroup for each.
#param COLS // columns of a part
#param ADD
#param LIKE
#param X16 // 1: x is f16
#param WG
#param SG

struct Params {
  scale: f32,
  x_stride: u32,
  x_first: u32,
  x_step: u32,
  y_stride: u32,
  y_first: u32,
  y_step: u32,
}
@bind var<uniform> p: Params;
#if X16
#param F16
@bind var<storage, read> x: array<f16>;
#else
@bind var<storage, read> x: array<f32>;
#endif
#if LIKE
@bind var<storage, read> like: array<f32>; // (n, COLS padded to 32)
#endif
@bind var<storage, read_write> y: array<f32>;
#if LIKE
#include "lib/reduce.wgsl"
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let x0 = wid.x * p.x_stride + p.x_first + wid.y * p.x_step;
  let y0 = wid.x * p.y_stride + p.y_first + wid.y * p.y_step;
  var factor = p.scale;
#if LIKE
  let like0 = wid.x * ((COLS + 31u) / 32u * 32u);
  var own = 0.0;
  var wanted = 0.0;
  for (var i = t; i < COLS; i += WG) {
    own += f32(x[x0 + i]) * f32(x[x0 + i]);
    wanted += like[like0 + i] * like[like0 + i];
  }
  own = workgroup_sum(own, t);
  wanted = workgroup_sum(wanted, t);
  factor *= select(0.0, sqrt(wanted / own), own > 0.0);
#endif
  for (var i = t; i < COLS; i += WG) {
#if ADD
    y[y0 + i] += factor * f32(x[x0 + i]);
#else
    y[y0 + i] = factor * f32(x[x0 + i]);
#endif
  }
}
