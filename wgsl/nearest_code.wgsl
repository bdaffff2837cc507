// A step of residual vector quantization: for each row of x, the nearest row of a codebook. taps[m, tap] = its number + row0,
// with weight 1, and x[m] -= that row: the next codebook codes what is left. Computes in f32, because roundings could choose other
// codes. Grid (tokens), a workgroup per token, whose threads take turns with the codes.
#param QUANT // fragment of wgsl/quants that reads the codebook
#param COLS // a multiple of 32
#param WG

struct Params {
  codes: u32, // rows of the codebook
  row0: u32, // the number of its first row in the table that the taps are of
  tap: u32, // which of a token's taps is written
  taps_stride: u32, // taps of a token in the buffer
  x_stride: u32,
}
@bind var<uniform> p: Params;
const W_GROUPS = COLS / 32u;
#include "quants/${QUANT}.wgsl"
#include "lib/argmax.wgsl"
@bind var<storage, read_write> x: array<vec4f>; // (n, x_stride)
@bind var<storage, read_write> taps: array<vec2u>; // (n, taps_stride): row of a table, bits of its f32 weight

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let at = wid.x * p.x_stride / 4u;
  var nearest = Best(EMPTY, 0u);
  for (var code = t; code < p.codes; code += WG) {
    var sums = vec4f(0); // of w * (2x - w): |x|^2 less the square of the distance, so largest for the nearest row
    for (var g = 0u; g < W_GROUPS; g++) {
      let w = w_group(code, g);
      for (var i = 0u; i < 8u; i++) {
        sums = fma(w[i], fma(x[at + g * 8u + i], vec4f(2), -w[i]), sums);
      }
    }
    nearest = better(nearest, Best(sums.x + sums.y + sums.z + sums.w, code));
  }
  let found = workgroup_argmax(nearest.value, nearest.index, t).index;
  storageBarrier();
  for (var g = t; g < W_GROUPS; g += WG) {
    let w = w_group(found, g);
    for (var i = 0u; i < 8u; i++) {
      x[at + g * 8u + i] -= w[i];
    }
  }
  if (t == 0u) {
    taps[wid.x * p.taps_stride + p.tap] = vec2u(p.row0 + found, bitcast<u32>(1.0));
  }
}
