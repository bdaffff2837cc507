// Rounds the x of a workgroup's tokens to signed bytes in workgroup memory: the same bytes as in quantize_x.wgsl. NORM: x is
// multiplied with the norm's weights, and the sum of squares is added in the order of matvec.wgsl: LANES threads for each
// group, each subgroup's sum, then the subgroups in turn.
var<workgroup> xq: array<vec4u, TOKENS * 2u * W_GROUPS>;
var<workgroup> xq_scale: array<vec2f, TOKENS * W_GROUPS>; // scale, scale x sum of the group

#include "lib/round_group.wgsl"
const WORKING = W_GROUPS * LANES; // threads of a token
#if SG
const SPAN = (WORKING + SG - 1u) / SG * SG; // whole subgroups
#else
const SPAN = WORKING;
#endif
#if NORM
const PARTS = SPAN / SG; // of a token's sum of squares
var<workgroup> squares_of: array<f32, TOKENS * PARTS>;

fn norm_scale(m: u32) -> f32 {
  var sum = 0.0;
  for (var i = 0u; i < PARTS; i++) {
    sum += squares_of[m * PARTS + i];
  }
  return inverseSqrt(sum / f32(COLS) + p.eps);
}
#endif

// Index of one half of group g of token m. Neighbouring threads read consecutive vectors.
fn xq_at(m: u32, g: u32, half: u32) -> u32 {
  return ((m * GROUPS_PER_THREAD + g % GROUPS_PER_THREAD) * 2u + half) * UNITS + g / GROUPS_PER_THREAD;
}

fn bytes_at(m: u32, g: u32) -> Bytes {
  return Bytes(xq[xq_at(m, g, 0u)], xq[xq_at(m, g, 1u)], xq_scale[m * W_GROUPS + g]);
}

// Rounds n tokens from m0 on. A barrier must follow. `stores_x`: store x_next (lib/post_norm.wgsl).
fn round_tokens(m0: u32, n: u32, t: u32, stores_x: bool) {
#if POST_THREADS
#for m in TOKENS
  let squares_of_post${m} = post_squares((m0 + min(${m}u, n - 1u)) * X_VECS, t);
#endfor
#for m in TOKENS
  let scale_of_post${m} = post_scale(squares_of_post${m}, t);
#endfor
#endif
  for (var pass_ = 0u; pass_ < (TOKENS * SPAN + WG - 1u) / WG; pass_++) { // all threads take part: they shuffle
    let i = pass_ * WG + t;
    let m = i / SPAN;
    let in_range = m < n && i % SPAN < WORKING;
    let g = min(i % SPAN / LANES, W_GROUPS - 1u);
    let first = g * 8u + i % LANES * VECS_PER_THREAD;
    let x0 = (m0 + min(m, n - 1u)) * X_VECS;
    var v: array<vec4f, VECS_PER_THREAD>;
#if NORM
    var squares = 0.0;
#endif
    for (var j = 0u; j < VECS_PER_THREAD; j++) {
#if POST_THREADS
      var scale_of_post = scale_of_post0;
#for k in 1, TOKENS
      scale_of_post = select(scale_of_post, scale_of_post${k}, m == ${k}u);
#endfor
      v[j] = post_added(post_fetch(x0 + first + j), scale_of_post);
      if (stores_x && in_range) {
        x_next[x0 + first + j] = v[j];
      }
#else
      v[j] = x[x0 + first + j];
#endif
#if NORM
      squares += select(0.0, dot(v[j], v[j]), in_range);
      v[j] *= norm[first + j];
#endif
    }
    let rounded = round_group(v);
    let words = rounded.words;
#if NORM
    for (var width = 1u; width < SG; width *= 2u) {
      squares += subgroupShuffleXor(squares, width);
    }
    if (i % SG == 0u && m < TOKENS) {
      squares_of[i / SG] = squares;
    }
#endif
#if SG >= 4
    let next = vec2u(subgroupShuffleXor(words[0], 1u), subgroupShuffleXor(words[1], 1u));
    if (in_range && i % 2u == 0u) { // store whole vectors: writing one component may race with writes of the others
      xq[xq_at(m, g, i % LANES / 2u)] = vec4u(words[0], words[1], next.x, next.y);
    }
#else
    if (in_range) {
      xq[xq_at(m, g, 0u)] = vec4u(words[0], words[1], words[2], words[3]);
      xq[xq_at(m, g, 1u)] = vec4u(words[4], words[5], words[6], words[7]);
    }
#endif
    if (in_range && i % LANES == 0u) {
      xq_scale[m * W_GROUPS + g] = rounded.scale;
    }
  }
}
