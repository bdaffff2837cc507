// xq[m] = x[m], x[m] * norm or x[m] * weights[m], rounded to signed bytes, for the integer products of small batches or,
// IN_ORDER, of matmul_int8.wgsl. Groups of 32 share a scale. NORM: x_scale[m] = 1 / rms(x[m]), a factor of the products.
// Does for every token what quantize_x.wgsl does in a workgroup of WG threads, with the same bits.
// BESIDE: further workgroups, the first ones in x, compute h = A x (lib/low_rank_input.wgsl).
// POST_THREADS: the norm after the previous block is added to x (lib/post_norm.wgsl).
// ADDED: what adapters add to x comes from the product before (lib/low_rank_rows.wgsl). If x is a residual stream, its sum is
// stored in x_next: other workgroups of this dispatch still read x. GATED: x stacks gate and up rows, and
// activation(gate) * up is rounded.
// Grid (BESIDE + groups * LANES / WG, tokens, SLOTS): LANES threads per group.
#param COLS // columns of x
#param NORM // 1: x is RMS-normalised
#param X_STRIDE // vec4 between rows of x, if they are not COLS padded to 32
#param WG // threads of matvec.wgsl: its sum of squares is added in this order
#param SG
#param POST_THREADS
#param BESIDE
#param ADDED
#param GATED
#param SLOTS // rows of x for each token
#param WEIGHTED // 1: each row is multiplied with a weight first
#param X16 // 1: x is f16
#if X16
#param F16
alias XVector = vec4<f16>;
#else
alias XVector = vec4f;
#endif
#if GATED
#param ACTIVATION // see activation.wgsl
#endif

struct Params {
  eps: f32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<XVector>; // (SLOTS * n, COLS padded to 32)
#if NORM
@bind var<storage, read> norm: array<vec4f>; // (COLS padded to 32)
#endif
#if ADDED
@bind var<storage, read> added: array<vec4f>; // (n, as x)
#if not GATED
@bind var<storage, read_write> x_next: array<vec4f>; // (n, as x)
#endif
#endif
#if WEIGHTED
@bind var<storage, read> weights: array<f32>; // (SLOTS * n)
#endif
#include "lib/rounded_rows.wgsl"
@bind var<storage, read_write> xq: array<u32>; // four signed bytes
@bind var<storage, read_write> xq_scale: array<vec2f>; // of each group: scale, scale x sum of the group
#if NORM
@bind var<storage, read_write> x_scale: array<f32>; // (n)
#include "lib/reduce.wgsl"
#endif

#if POST_THREADS
#include "lib/post_norm.wgsl"
#endif

const GROUPS = XQ_GROUPS;
#include "lib/round_group.wgsl"
#if GATED
#include "lib/activation.wgsl"
const UP = COLS / 4u; // vectors of the gate
#endif

// Vector `at` of a row as the kernel's buffers have it.
fn stacked_at(at: u32) -> vec4f {
#if ADDED
  return vec4f(x[at]) + added[at];
#else
  return vec4f(x[at]);
#endif
}

// Vector i of the row of x that begins at x0.
fn input_at(x0: u32, i: u32) -> vec4f {
#if GATED
  let gate = stacked_at(x0 + i);
  let up = stacked_at(x0 + UP + i);
  return vec4f(gated(gate.x, up.x), gated(gate.y, up.y), gated(gate.z, up.z), gated(gate.w, up.w));
#else
  return stacked_at(x0 + i);
#endif
}
#if BESIDE
const W_GROUPS = GROUPS;
#include "lib/low_rank_input.wgsl"
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y * SLOTS + wid.z;
  if (wid.y >= state.n) { // uniform: state does not change within a dispatch
    return;
  }
#if X_STRIDE
  let x0 = m * X_STRIDE;
#else
  let x0 = m * GROUPS * 8u;
#endif
#if BESIDE
  if (wid.x < BESIDE) {
    low_rank_input(wid.x, x0, m, t);
    return;
  }
#endif
  let i = (wid.x - BESIDE) * WG + t;
  let in_range = i < GROUPS * LANES; // threads out of range join the shuffles and store nothing
  let g = min(i / LANES, GROUPS - 1u);
  let first = g * 8u + i % LANES * VECS_PER_THREAD;
#if POST_THREADS
  var fetched: array<array<vec4f, 2>, VECS_PER_THREAD>;
  for (var j = 0u; j < VECS_PER_THREAD; j++) {
    fetched[j] = post_fetch(x0 + first + j);
  }
  let scale_of_post = post_scale(post_squares(x0, t), t);
#endif
  var v = array<vec4f, VECS_PER_THREAD>();
#if NORM
  var weights = array<vec4f, VECS_PER_THREAD>(); // loaded before the threads wait for each other
#endif
  for (var j = 0u; j < VECS_PER_THREAD; j++) {
#if POST_THREADS
    v[j] = post_added(fetched[j], scale_of_post);
    if (in_range) {
      x_next[x0 + first + j] = v[j];
    }
#else
    v[j] = input_at(x0, first + j);
#if WEIGHTED
    v[j] *= weights[m];
#endif
#if ADDED and not GATED
    if (in_range) {
      x_next[x0 + first + j] = v[j];
    }
#endif
#endif
#if NORM
    weights[j] = norm[first + j];
#endif
  }
#if NORM
  var squares = 0.0;
  for (var pass_ = 0u; pass_ < (GROUPS * LANES + WG - 1u) / WG; pass_++) {
    let k = pass_ * WG + t;
    let counts = k < GROUPS * LANES;
    let from_ = min(k / LANES, GROUPS - 1u) * 8u + k % LANES * VECS_PER_THREAD;
    for (var j = 0u; j < VECS_PER_THREAD; j++) {
#if POST_THREADS
      let value = post_added(post_fetch(x0 + from_ + j), scale_of_post);
#else
      let value = input_at(x0, from_ + j);
#endif
      squares += select(0.0, dot(value, value), counts);
    }
  }
  squares = workgroup_sum(squares, t);
  if (wid.x == BESIDE && t == 0u) {
    x_scale[m] = inverseSqrt(squares / f32(COLS) + p.eps);
  }
#endif
#if NORM
  for (var j = 0u; j < VECS_PER_THREAD; j++) {
    v[j] *= weights[j];
  }
#endif
  let rounded = round_group(v);
  if (in_range) {
    for (var j = 0u; j < VECS_PER_THREAD; j++) {
      let word = i % LANES * VECS_PER_THREAD + j; // of the group
      xq[4u * xq_at(m, g, word / 4u) + word % 4u] = rounded.words[j];
    }
    if (i % LANES == 0u) {
      xq_scale[xq_scale_at(m, g)] = rounded.scale;
    }
  }
}
