// What adapters add to products with experts' matrices, from h = A x (expert_low_rank.wgsl). B stacks a matrix
// (EXPERTS x ROWS, COLS) of each entry; an entry adds to ROWS columns of y.
// SUM 0: y[m, k] += scale * B[expert k of m] h[m, k]; grid (columns / WG, USED, tokens).
// SUM 1: y[m] += sum over k of weights[m, k] * scale * B[expert k of m] h[m, k]; grid (columns / WG, 1, tokens).
#param QUANT // fragment of wgsl/quants that reads B
#param COLS // of B: the rank
#param EXPERTS
#param ROWS // of an expert's B
#param STACK // entries
#param USERS // the number of each entry's adapter
#param RATIOS // alpha / rank of each entry
#param COLUMNS // each entry's first column of y
#param USED // experts of a token
#param SUM
#param FACTORS // 1: weights have factors of the experts' outputs, which do not apply to what adapters add
#param H_STRIDE // floats between rows of h
#param WG
#include "lib/sequence.wgsl"
struct Params {
  first: u32, // the first column of y that an entry has
  cols: u32, // columns from there on, to the last one
  y_stride: u32, // floats between rows of y
}
@bind var<uniform> p: Params;
#include "lib/low_rank_place.wgsl"
const USER = array<u32, STACK>(
#text USERS
);
const RATIO = array<f32, STACK>(
#text RATIOS
);
const COLUMN = array<u32, STACK>(
#text COLUMNS
);
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read> chosen: array<u32>; // (n, USED)
#if SUM
@bind var<storage, read> weights: array<f32>; // (n, USED)
#if FACTORS
@bind var<storage, read> factors: array<f32>; // (EXPERTS)
#endif
#endif
@bind var<storage, read> h: array<f32>; // (n * USED, H_STRIDE)
@bind var<storage, read_write> y: array<f32>; // (n, or n * USED; y_stride)

const SIZE = 8u * W_GROUPS; // vec4 of an entry's columns of h
var<workgroup> scaled: array<vec4f, STACK * SIZE>; // h times the scales, padded with zeros
var<workgroup> used: array<u32, STACK>; // 1: the token's scale of the entry's adapter is not 0

// The scale of entry e for a token.
fn scale_of(place: Place, e: u32) -> f32 {
  let scale = scales[place.seq * ADAPTERS + USER[e]];
  return select(0.0, scale.x * RATIO[e], place.pos >= scale.y);
}

// Column c of an entry's part of h, times `factor`; 0 where it has none, or where 0 would be multiplied with anything.
fn scaled_at(first: u32, c: u32, factor: f32) -> f32 {
  return select(0.0, factor * h[first + min(c, COLS - 1u)], factor != 0.0 && c < COLS);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.z;
  if (m >= count()) { // uniform: state does not change within a dispatch
    return;
  }
  let place = place_of(m);
  let column = wid.x * WG + t;
  let row = p.first + column;
  var sum = 0.0;
#if SUM
  for (var k = 0u; k < USED; k++) {
#else
  let k = wid.y;
  {
#endif
    let slot = m * USED + k;
    let expert = chosen[slot];
    workgroupBarrier();
    for (var e = t; e < STACK; e += WG) {
      used[e] = select(0u, 1u, scale_of(place, e) != 0.0);
    }
    for (var i = t; i < STACK * SIZE; i += WG) {
      let e = i / SIZE;
      let c = 4u * (i % SIZE);
      let first = slot * H_STRIDE + e * COLS;
      var factor = scale_of(place, e);
#if SUM
      factor *= weights[slot];
#endif
#if FACTORS
      factor = select(0.0, factor / factors[expert], factors[expert] != 0.0);
#endif
      scaled[i] = vec4f(
        scaled_at(first, c, factor), scaled_at(first, c + 1u, factor), scaled_at(first, c + 2u, factor),
        scaled_at(first, c + 3u, factor));
    }
    workgroupBarrier();
    for (var e = 0u; e < STACK; e++) {
      let at = row - COLUMN[e]; // wraps around below the entry's first column
      if (used[e] == 0u || at >= ROWS || column >= p.cols) {
        continue;
      }
      for (var g = 0u; g < W_GROUPS; g++) {
        let w = w_group((e * EXPERTS + expert) * ROWS + at, g);
        var found = 0.0;
#for i in 8 if COLS > 28 else (COLS + 3) // 4
        found += dot(w[${i}], scaled[e * SIZE + g * 8u + ${i}u]);
#endfor
        sum += found;
      }
    }
  }
  if (column < p.cols) {
#if SUM
    y[m * p.y_stride + row] += sum;
#else
    y[(m * USED + k) * p.y_stride + row] += sum;
#endif
  }
}
