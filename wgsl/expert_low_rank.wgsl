// h[m, k] = A x for expert k of token m: the first step of what adapters add to products with experts' matrices
// (py_engine/plan/expert_low_rank.py). A stacks a matrix (EXPERTS x ROWS, COLS) of each entry.
// Grid (STACK * ROWS / (WG / LANES), USED, tokens). LANES threads share a row. Rows of adapters that the token does not
// use are 0, and cost little.
#param QUANT // fragment of wgsl/quants that reads A
#param COLS
#param EXPERTS
#param ROWS // of an expert's A: the rank
#param STACK // entries
#param USERS // the number of each entry's adapter
#param USED // experts of a token
#param X_PER_SLOT // 1: x has a row for each expert of a token; 0: one for all
#param X16 // 1: x is f16
#param NORM // 1: x is RMS-normalised first
#param H_STRIDE // floats between rows of h
#param LANES
#param WG
#if X16
#param F16
alias XVector = vec4<f16>;
#else
alias XVector = vec4f;
#endif
#include "lib/sequence.wgsl"
#if NORM
struct Params {
  eps: f32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> norm: array<vec4f>;
#endif
#include "lib/low_rank_place.wgsl"
const USER = array<u32, STACK>(
#text USERS
);
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read> x: array<XVector>; // (n, or n * USED; COLS padded to 32)
@bind var<storage, read> chosen: array<u32>; // (n, USED)
@bind var<storage, read_write> h: array<f32>; // (n * USED, H_STRIDE)

var<workgroup> parts: array<vec2f, WG>; // sums of products; of squares

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.z;
  if (m >= count()) { // uniform: state does not change within a dispatch
    return;
  }
  let slot = m * USED + wid.y;
  let row = wid.x * (WG / LANES) + t / LANES;
  let lane = t % LANES;
  let inside = min(row, STACK * ROWS - 1u);
  let place = place_of(m);
  let scale = scales[place.seq * ADAPTERS + USER[inside / ROWS]];
  var sums = vec2f(0);
  if (scale.x != 0.0 && place.pos >= scale.y) {
    let w_row = (inside / ROWS * EXPERTS + chosen[slot]) * ROWS + inside % ROWS;
    let x0 = select(m, slot, X_PER_SLOT == 1u) * W_GROUPS * 8u;
    for (var g = lane; g < W_GROUPS; g += LANES) {
      let w = w_group(w_row, g);
      var sum = vec4f(0);
      for (var i = 0u; i < 8u; i++) {
        let at = 8u * g + i;
        var v = vec4f(x[x0 + at]);
        if (COLS % 32u != 0u) { // the padding's contents are undefined
          v = select(vec4f(0), v, 4u * at + vec4u(0, 1, 2, 3) < vec4u(COLS));
        }
#if NORM
        sums.y += dot(v, v);
        v *= norm[at];
#endif
        sum = fma(w[i], v, sum);
      }
      sums.x += sum.x + sum.y + sum.z + sum.w;
    }
  }
  parts[t] = sums;
  workgroupBarrier();
  if (lane != 0u || row >= STACK * ROWS) {
    return;
  }
  sums = vec2f(0);
  for (var i = 0u; i < LANES; i++) {
    sums += parts[t + i];
  }
#if NORM
  h[slot * H_STRIDE + row] = sums.x * inverseSqrt(sums.y / f32(COLS) + p.eps);
#else
  h[slot * H_STRIDE + row] = sums.x;
#endif
}
