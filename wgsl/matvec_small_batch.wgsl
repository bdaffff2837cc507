// y[m] = W x[m] for a small batch, at little more than the cost of one vector: each weight is read once for TOKENS tokens.
// A workgroup for each slice of TOKENS tokens (x of the grid): those with the same rows are side by side, so the first one loads
// the weights, the others find them in the GPU's cache. With few tokens a workgroup there are more threads, each loads less, and
// programs are shorter. Fusions as in matvec.wgsl. A token's result equals matvec.wgsl's for it, bit by bit: with the same TK, every
// sum has the same terms in the same order. So a text does not depend on which other sequences share its steps.
#param DOT8 // 1: x is bytes from quantize_rows.wgsl
#param LOOPED // 1: a loop over the tokens, which a software GPU compiles in a tenth of the time; not with DOT8
#param POST_THREADS // see lib/post_norm.wgsl; only with ROUNDS
#param BESIDE // workgroups of each token that compute A x beside W x (lib/low_rank_input.wgsl); 0: none
#param LOW_RANK // workgroups of each token that compute what adapters add to y (lib/low_rank_rows.wgsl); 0: none
#param LOW_RANK_OWN_ROWS // 1: each workgroup adds to its rows of y what adapters add to them
#if DOT8
#param ROUNDS // 1: the workgroup rounds x itself (lib/round_tokens.wgsl)
#param SCALED // 1: x was multiplied with a norm's weights; its results are multiplied with x_scale
#endif
#include "lib/matvec_inputs.wgsl"
#if DOT8 and not ROUNDS
#include "lib/rounded_rows.wgsl"
@bind var<storage, read> xq: array<vec4u>; // 16 signed bytes
@bind var<storage, read> xq_scale: array<vec2f>; // of each group: scale, scale x sum of the group
#if SCALED
@bind var<storage, read> x_scale: array<f32>; // (n)
#endif
#else
@bind var<storage, read> x: array<vec4f>; // (n, COLS padded to 32)
#if POST_THREADS
#include "lib/post_norm.wgsl"
#endif
#endif
#if BESIDE
fn input_at(x0: u32, i: u32) -> vec4f {
  return x[x0 + i];
}
#include "lib/low_rank_input.wgsl"
#endif
#if LOW_RANK or LOW_RANK_OWN_ROWS
#param ADDS_L // "low_rank" or "low_rank_equal"
#include "lib/${ADDS_L}.wgsl" as _L
#endif
#if LOW_RANK
#include "lib/low_rank_rows.wgsl"
#endif
#include "lib/small_batch_rows.wgsl"
#if SECOND
#include "lib/small_batch_rows.wgsl" as _2
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) wgs: vec3u, @builtin(local_invocation_index) t: u32) {
  let index = index_of(wid, wgs);
  let m0 = wid.x * TOKENS; // the workgroup's first token
#if BESIDE
  if (index < BESIDE * TOKENS) {
    let m = m0 + index % TOKENS;
    if (m < count()) { // uniform: state does not change within a dispatch
      low_rank_input(index / TOKENS, m * X_VECS, m, t);
    }
    return;
  }
#endif
#if SECOND or LOW_RANK
  let first = (p.rows + RT - 1u) / RT; // workgroup after those of the first matrix
#if LOW_RANK
#if SECOND
  let products = first + (p.rows_2 + RT_2 - 1u) / RT_2;
#else
  let products = first;
#endif
  if (index >= products) {
    low_rank_rows(index - products, m0, t);
    return;
  }
#endif
#if SECOND
  if (index >= first) {
    multiply_2(index - first, m0, t, p.rows_2, p.row0 + p.rows);
    return;
  }
#endif
#endif
  multiply(index - BESIDE * TOKENS, m0, t, p.rows, p.row0);
}
