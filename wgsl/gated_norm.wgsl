// y[m] = norm(x[m]) gated by silu(z[m]), where norm is the RMS norm of each group of columns. SIGMOID: by sigmoid(z[m]).
// GATE_FIRST: norm(x * silu(z)); else norm(x) * silu(z). Grid (tokens, groups), a workgroup for each.
#param COLS // columns of a group
#param NORM // groups that the norm's weights are of: all, or 1 for the same in every group; 0: no norm
#param GATE_FIRST
#param SIGMOID
#param WG
#param SG
#param Y16 // 1: y is f16
#if Y16
#param F16
#endif

struct Params {
  x_stride: u32,
  z_stride: u32,
  first: u32, // column of z
  y_stride: u32,
  eps: f32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
@bind var<storage, read> z: array<f32>; // (n, z_stride)
#if NORM
@bind var<storage, read> norm: array<f32>; // (NORM * COLS)
#endif
#if Y16
@bind var<storage, read_write> y: array<f16>; // (n, y_stride)
#else
@bind var<storage, read_write> y: array<f32>;
#endif
#include "lib/reduce.wgsl"

fn gate(v: f32) -> f32 {
#if SIGMOID
  return 1.0 / (1.0 + exp(-v));
#else
  return v / (1.0 + exp(-v));
#endif
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let x0 = wid.x * p.x_stride + wid.y * COLS;
  let z0 = wid.x * p.z_stride + p.first + wid.y * COLS;
  let y0 = wid.x * p.y_stride + wid.y * COLS;
  var scale = 1.0;
  var sum = 0.0;
  // One variable per value: all loads are in flight together, and nothing is loaded twice.
#for i in (COLS + WG - 1) // WG
  var v${i} = 0.0;
  var gate${i} = 1.0;
  if (t + ${i}u * WG < COLS) {
    v${i} = x[x0 + t + ${i}u * WG];
    gate${i} = gate(z[z0 + t + ${i}u * WG]);
  }
#if GATE_FIRST
  v${i} *= gate${i};
  gate${i} = 1.0;
#endif
  sum += v${i} * v${i};
#endfor
#if NORM
  scale = inverseSqrt(workgroup_sum(sum, t) / f32(COLS) + p.eps);
#endif
#for i in (COLS + WG - 1) // WG
  if (t + ${i}u * WG < COLS) {
    let i = t + ${i}u * WG;
    var v = v${i} * gate${i} * scale;
#if NORM
    v *= norm[wid.y % NORM * COLS + i];
#endif
#if Y16
    y[y0 + i] = f16(v);
#else
    y[y0 + i] = v;
#endif
  }
#endfor
}
