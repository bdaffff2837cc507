// y[m] = x[m] / rms(x[m]) * weight, a workgroup a row. Zhang and Sennrich 2019.
#param COLS
#param WG
#param SG

struct Params {
  eps: f32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<vec4f>; // (n, COLS padded)
@bind var<storage, read> norm: array<vec4f>; // (COLS padded), zeros at the end
@bind var<storage, read_write> y: array<vec4f>;
#include "reduce.wgsl"

const VECS = (COLS + 31u) / 32u * 8u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let at = wid.x * VECS;
  var sum = 0.0;
  for (var i = t; i < VECS; i += WG) {
    var v = x[at + i];
    if (COLS % 32u != 0u) { // what lies behind the row is not ours
      v = select(vec4f(0), v, 4u * i + vec4u(0, 1, 2, 3) < vec4u(COLS));
    }
    sum += dot(v, v);
  }
  let scale = inverseSqrt(workgroup_sum(sum, t) / f32(COLS) + p.eps);
  for (var i = t; i < VECS; i += WG) {
    y[at + i] = x[at + i] * norm[i] * scale;
  }
}
