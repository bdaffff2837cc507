// y = W x for one vector: decoding spends most of its time here. W is (rows, COLS). Grid: rows / (TR * R) workgroups in x
// and y.
//
// A workgroup is TR x TK threads. TK threads share a row; each reads every TK-th group of 32 columns. Each thread sums R
// rows, so it loads x once for all of them. One dispatch also fuses:
//   DOT8      rounds x to bytes first (quantize_x.wgsl), for integer dot products
//   NORM      RMS norm of x: y = W (x * norm) / rms(x); the sum of squares is taken in the same loop
//   MERGED    x is joined of the splits of attention (lib/merged_splits.wgsl)
//   POST_THREADS   the norm after the previous block is added to x (lib/post_norm.wgsl)
//   BESIDE    h = A x by further workgroups, the first ones in x (lib/low_rank_input.wgsl)
//   SECOND    the rows of a second matrix, by further workgroups, the last ones in x
//   EPILOGUE  "store" y = W x; "add" y += W x, or FACTOR times it; "activate" y = activation(W x);
//             "gated" y[i] = activation((W x)[i]) * (W x)[i + rows / 2]; "gate" y[i] = activation((W x)[i]) * up[i];
//             "qkv" rotates queries and keys (RoPE), appends keys and values to the cache at state.pos
// experts.wgsl uses the same code for the chosen experts' matrices.
#param DOT8
#param LAST // 1: x has a row per token, and the last one is multiplied; 0: x has one row
#param EXPERTS // of a mixture, see experts.wgsl; 0: W is one matrix
#param POST_THREADS
#param BESIDE // workgroups that compute A x beside W x; 0: none
#param ROUNDED_BEFORE // 1: quantize_rows.wgsl has made x bytes, with SUM times the weights. Only with EXPERTS and DOT8
#if ROUNDED_BEFORE
#param SCALED // 1: x was multiplied with a norm's weights; its results are multiplied with x_scale
#endif
#include "lib/matvec_inputs.wgsl"
#if MERGED
#include "lib/splits_input.wgsl"

// Vector i of x, which is the attention of all heads.
fn x_at(i: u32) -> vec4f {
  let seen = visible_range(0u);
  let size = split_size(seen.y - seen.x);
  let head = i / VECS;
  return merged(head * SPLIT, i % VECS, min(MERGED, (seen.y - seen.x + size - 1u) / size), head);
}
#else
#if ROUNDED_BEFORE
#include "lib/rounded_rows.wgsl"
@bind var<storage, read> xq: array<vec4u>; // (n, or with SUM n * USED, COLS), 16 signed bytes
@bind var<storage, read> xq_scale: array<vec2f>; // of each group: scale, scale x sum of the group
#if SCALED
@bind var<storage, read> x_scale: array<f32>; // (n)
#endif
#else
@bind var<storage, read> x: array<vec4f>; // (n, COLS padded to 32)
#endif
#if POST_THREADS
#include "lib/post_norm.wgsl"
#endif

#if not ROUNDED_BEFORE
fn x_at(i: u32) -> vec4f {
  return x[i];
}
#endif
#endif
#if EXPERTS
#include "lib/expert_rows.wgsl"
#else
const X_GROUPS = W_GROUPS; // groups of x that a row is multiplied with
#endif
#if DOT8 and not ROUNDED_BEFORE
var<workgroup> xq: array<vec4u, 2u * X_GROUPS>; // x as bytes: see quantize_x.wgsl
var<workgroup> xq_scale: array<vec2f, X_GROUPS>; // scale, scale x sum of the group
#endif
#if DOT8 and NORM
#include "lib/reduce.wgsl"
#endif
#if BESIDE
fn input_at(x0: u32, i: u32) -> vec4f {
  return x[x0 + i];
}
#include "lib/low_rank_input.wgsl"
#endif
#include "lib/matvec_rows.wgsl"
#if SECOND
#include "lib/matvec_rows.wgsl" as _2
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) wgs: vec3u, @builtin(local_invocation_index) t: u32) {
#if SECOND
  let first = (p.rows + RT - 1u) / RT; // workgroup of the second matrix
  if (wid.x >= first) {
    multiply_2(vec3u(wid.x - first, 0u, 0u), wgs, t, p.rows_2, p.row0 + p.rows);
    return;
  }
#endif
  multiply(wid, wgs, t, p.rows, p.row0);
}
