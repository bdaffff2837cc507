// y[c] = sqrt(sum over m of x[m, c]^2): the length of each column over all tokens. Grid (groups of 64 columns), a workgroup
// per group: 16 threads have its columns, four each, of one token in 16.
#param COLS

struct Params {
  x_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<vec4f>; // (n, x_stride)
@bind var<storage, read_write> y: array<f32>; // (COLS)

const LANES = 16u;
const VECS = (COLS + 3u) / 4u;
var<workgroup> sums: array<vec4f, LANES * LANES>;

@compute @workgroup_size(LANES * LANES)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let v = wid.x * LANES + t % LANES;
  var sum = vec4f(0);
  if (v < VECS) {
    for (var m = t / LANES; m < state.n; m += LANES) {
      let one = x[m * p.x_stride / 4u + v];
      sum = fma(one, one, sum);
    }
  }
  sums[t] = sum;
  workgroupBarrier();
  if (t < LANES && v < VECS) {
    for (var lane = 1u; lane < LANES; lane++) {
      sum += sums[lane * LANES + t];
    }
    for (var i = 4u * v; i < min(4u * v + 4u, COLS); i++) {
      y[i] = sqrt(sum[i % 4u]);
    }
  }
}
