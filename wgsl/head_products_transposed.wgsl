// y[m, h] = W[h]^T x[m, h]: as head_products.wgsl, but the rows of a head's matrix are its inputs. Grid (groups of 32
// columns / WG, heads, tokens).
#param QUANT // fragment of wgsl/quants that reads W
#param HEADS
#param ROWS // of a head's matrix: inputs
#param COLS // of a head's matrix: outputs, a multiple of 4
#param WG

struct Params {
  x_stride: u32, // numbers between tokens of x
  x_first: u32, // the first head's column of x
  x_head: u32, // columns between heads of x
  y_stride: u32,
  y_first: u32,
  y_head: u32,
  w_first: u32, // the first head's row of W
  w_head: u32, // rows between heads of W
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>;
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let g = id.x;
  let head = id.y;
  let m = id.z;
  if (m >= state.n || g >= W_GROUPS) {
    return;
  }
  var sums = array<vec4f, 8>();
  for (var row = 0u; row < ROWS; row++) {
    let w = w_group(p.w_first + head * p.w_head + row, g);
    let v = vec4f(x[m * p.x_stride + p.x_first + head * p.x_head + row]);
    for (var i = 0u; i < 8u; i++) {
      sums[i] = fma(w[i], v, sums[i]);
    }
  }
  let at = m * p.y_stride + p.y_first + head * p.y_head + 32u * g;
  for (var i = 0u; i < 8u; i++) {
    if (32u * g + 4u * i < COLS) {
      y[at + 4u * i] = sums[i].x;
      y[at + 4u * i + 1u] = sums[i].y;
      y[at + 4u * i + 2u] = sums[i].z;
      y[at + 4u * i + 3u] = sums[i].w;
    }
  }
}
