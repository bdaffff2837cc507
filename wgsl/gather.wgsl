// y[m, first on] = sum over t < TAPS of weight[m, t] * table[id[m, t]]; ADD: y[m] += ... The host writes the taps, so that one
// kernel adds positions, resizes tables of positions, pools and reorders rows. Grid (groups of 32 columns / WG, tokens).
#param QUANT // fragment of wgsl/quants that reads the table
#param COLS // columns of the table: a multiple of 4
#param TAPS // rows of the table that are summed
#param ADD // 1: added to y
#param WG

struct Params {
  row0: u32, // first row of this part of the table
  rows: u32, // rows of this part
  tap0: u32, // the first of a token's taps
  taps_stride: u32, // taps of a token in the buffer
  first: u32, // first column of y
  y_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> taps: array<vec2u>; // (n, taps_stride): row of the table, bits of its f32 weight
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read_write> y: array<vec4f>; // (n, y_stride)

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let g = id.x;
  let m = id.y;
  if (m >= state.n || g >= W_GROUPS) {
    return;
  }
  let at = (m * p.y_stride + p.first) / 4u + g * 8u;
  let vectors = min(8u, COLS / 4u - g * 8u); // the columns after them may be another part's
  var sums: array<vec4f, 8>;
  for (var i = 0u; i < 8u; i++) {
    sums[i] = vec4f(0);
#if ADD
    if (i < vectors) {
      sums[i] = y[at + i];
    }
#endif
  }
  for (var t = 0u; t < TAPS; t++) {
    let tap = taps[m * p.taps_stride + p.tap0 + t];
    let row = tap.x - p.row0;
    let weight = bitcast<f32>(tap.y);
    if (weight != 0.0 && row < p.rows) {
      let w = w_group(row, g);
      for (var i = 0u; i < 8u; i++) {
        sums[i] = fma(w[i], vec4f(weight), sums[i]);
      }
    }
  }
  for (var i = 0u; i < vectors; i++) {
    y[at + i] = sums[i];
  }
}
