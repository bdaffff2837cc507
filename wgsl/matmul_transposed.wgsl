// Y = X W: as matmul.wgsl, but W is stored (inputs, outputs). For a small matrix at the end of a plan; not fast.
// Grid (groups of 32 outputs / WG, tokens).
#param QUANT // fragment of wgsl/quants that reads W
#param COLS // outputs: columns of W
#param WG

struct Params {
  rows: u32, // inputs: rows of W
  x_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read_write> y: array<vec4f>; // (n, COLS padded to 32)

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let g = id.x;
  let m = id.y;
  if (m >= state.n || g >= W_GROUPS) {
    return;
  }
  var sums = array<vec4f, 8>();
  for (var row = 0u; row < p.rows; row++) {
    let w = w_group(row, g);
    let v = vec4f(x[m * p.x_stride + row]);
    for (var i = 0u; i < 8u; i++) {
      sums[i] = fma(w[i], v, sums[i]);
    }
  }
  for (var i = 0u; i < 8u; i++) {
    y[(m * W_GROUPS + g) * 8u + i] = sums[i];
  }
}
