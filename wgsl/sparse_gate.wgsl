// y[m] = activation(max(0, gate - least)) * up, where x[m] stacks gate and up, and least is the gates' mean plus some of
// their standard deviations. Grid (tokens), a workgroup for each.
#param COLS // columns of y, at least 2
#param ACTIVATION // see activation.wgsl
#param Y16 // 1: y is f16
#param WG
#param SG

struct Params {
  deviations: f32,
  x_stride: u32,
  y_stride: u32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>;
#include "lib/result.wgsl"
#include "lib/activation.wgsl"
#include "lib/reduce.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let x0 = wid.x * p.x_stride;
  // One variable per value: all loads are in flight together, and nothing is loaded twice.
#for i in (COLS + WG - 1) // WG
  var gate${i} = 0.0;
  var up${i} = 0.0;
  if (t + ${i}u * WG < COLS) {
    gate${i} = x[x0 + t + ${i}u * WG];
    up${i} = x[x0 + COLS + t + ${i}u * WG];
  }
#endfor
  var sum = 0.0;
#for i in (COLS + WG - 1) // WG
  sum += gate${i};
#endfor
  let mean = workgroup_sum(sum, t) / f32(COLS);
  var squares = 0.0;
#for i in (COLS + WG - 1) // WG
  if (t + ${i}u * WG < COLS) {
    squares += (gate${i} - mean) * (gate${i} - mean);
  }
#endfor
  let least = mean + p.deviations * sqrt(workgroup_sum(squares, t) / f32(COLS - 1u));
#for i in (COLS + WG - 1) // WG
  if (t + ${i}u * WG < COLS) {
    y[wid.x * p.y_stride + t + ${i}u * WG] = Value(gated(max(gate${i} - least, 0.0), up${i}));
  }
#endfor
}
