// h = A x beside a product with the same x, or its norm: the first step of what adapters add (py_engine/plan/low_rank.py).
// The first workgroups of a dispatch compute it, each a few rows of A for one token. A_LANES threads share a row in every
// kernel, so a token's h has the same bits in a small batch as alone. The kernel has input_at(), norm, eps, W_GROUPS and WG.
#param QUANT_A // fragment of wgsl/quants that reads A: one of floats
#param A_ROWS
#param A_LANES
#param H_STRIDE // floats between tokens of h
#param SG
#include "lib/strided_at.wgsl" as _A
#include "quants/${QUANT_A}.wgsl" with w_qs=lora_a w_group=lora_a_group w_floats=lora_a_floats w_strided=lora_a_strided
@bind var<storage, read_write> h: array<f32>; // (n, H_STRIDE)

#if SG
const A_SHUFFLED = min(SG, A_LANES); // lanes that add their parts by shuffling
#else
const A_SHUFFLED = 1u;
#endif
const A_PARTS = A_LANES / A_SHUFFLED; // of a row's sums, in workgroup memory
const A_TILE = WG / A_LANES; // rows of a workgroup
var<workgroup> a_sums: array<vec2f, A_TILE * A_PARTS>; // of products; of squares

// Rows of h for a token. `block`: which rows; x0: where the token's row of x begins; m: the row of h.
fn low_rank_input(block: u32, x0: u32, m: u32, t: u32) {
  let lane = t % A_LANES;
  let row = block * A_TILE + t / A_LANES;
  var sums = vec2f(0);
  for (var g = lane; g < W_GROUPS; g += A_LANES) {
    let w = lora_a_strided(min(row, A_ROWS - 1u), g);
    var sum = vec4f(0);
    for (var i = 0u; i < 8u; i++) {
      let at = strided_at_A(g, i);
      var v = input_at(x0, at);
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
#if SG
  for (var width = 1u; width < A_SHUFFLED; width *= 2u) {
    sums += subgroupShuffleXor(sums, width);
  }
#endif
  if (lane % A_SHUFFLED == 0u) {
    a_sums[t / A_SHUFFLED] = sums;
  }
  workgroupBarrier();
  if (lane != 0u || row >= A_ROWS) {
    return;
  }
  sums = vec2f(0);
  for (var i = 0u; i < A_PARTS; i++) {
    sums += a_sums[t / A_SHUFFLED + i];
  }
#if NORM
  h[m * H_STRIDE + row] = sums.x * inverseSqrt(sums.y / f32(COLS) + p.eps);
#else
  h[m * H_STRIDE + row] = sums.x;
#endif
}
