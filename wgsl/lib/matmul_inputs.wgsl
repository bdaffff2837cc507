// Bindings, loads of X and the epilogue that both mat-mul kernels share.
struct Params {
  rows: u32,
  row0: u32, // column of y for W's first row
  y_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<vec4f>; // (n, COLS padded to 32)
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
#if BIAS
@bind var<storage, read> bias: array<f32>;
#endif
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)

// Four values of x[m], columns 32 * g + 4 * c on; zeros after the last token and the last column.
fn load_x(m: u32, g: u32, c: u32) -> vec4f {
  if (m >= state.n || g >= W_GROUPS) {
    return vec4f(0);
  }
  let v = x[(m * W_GROUPS + g) * 8u + c];
  if (COLS % 32u != 0u) { // the padding's contents are undefined
    return select(vec4f(0), v, 32u * g + 4u * c + vec4u(0, 1, 2, 3) < vec4u(COLS));
  }
  return v;
}

// Applies bias and epilogue to one result.
fn store_y(m: u32, row: u32, sum: f32) {
  if (m >= state.n || row >= p.rows) {
    return;
  }
  let at = m * p.y_stride + p.row0 + row;
  var v = sum;
#if BIAS
  v += bias[p.row0 + row];
#endif
#if EPILOGUE == "add"
  y[at] += v;
#else
  y[at] = v;
#endif
}
