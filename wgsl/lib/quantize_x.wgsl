// Rounds x to signed bytes in workgroup memory: integer weights can then use dot4I8Packed. Returns this thread's part of
// the sum of squares of x.
#include "lib/round_group.wgsl"

// Index of one half of a group. Neighbouring threads read consecutive vectors, which avoids bank conflicts.
fn xq_at(g: u32, half: u32) -> u32 {
  return (g % GROUPS_PER_THREAD * 2u + half) * UNITS + g / GROUPS_PER_THREAD;
}

// Group g of x; there is no other row.
fn bytes_at(m: u32, g: u32) -> Bytes {
  return Bytes(xq[xq_at(g, 0u)], xq[xq_at(g, 1u)], xq_scale[g]);
}

// `stores_x`: with POST_THREADS, whether this workgroup stores x_next.
fn quantize_x(x0: u32, t: u32, choice: u32, stores_x: bool) -> f32 {
  var squares = 0.0;
#if POST_THREADS
  var scale_of_post = 0.0;
#endif
  for (var pass_ = 0u; pass_ < (X_GROUPS * LANES + WG - 1u) / WG; pass_++) { // all threads take part: they shuffle
    let i = pass_ * WG + t;
    let g = min(i / LANES, X_GROUPS - 1u);
    let in_range = i < X_GROUPS * LANES;
    let first = g * 8u + i % LANES * VECS_PER_THREAD;
    var v: array<vec4f, VECS_PER_THREAD>;
#if POST_THREADS
    var fetched: array<array<vec4f, 2>, VECS_PER_THREAD>;
    for (var j = 0u; j < VECS_PER_THREAD; j++) {
      fetched[j] = post_fetch(x0 + first + j);
    }
    if (pass_ == 0u) { // uniform
      scale_of_post = post_scale(post_squares(x0, t), t);
    }
#endif
    for (var j = 0u; j < VECS_PER_THREAD; j++) {
#if POST_THREADS
      v[j] = post_added(fetched[j], scale_of_post);
#else
      v[j] = x_at(x0 + first + j);
#endif
#if EXPERTS
      v[j] *= x_factor(g, choice);
#endif
#if POST_THREADS
      if (stores_x && in_range) {
        x_next[x0 + first + j] = v[j];
      }
#endif
#if NORM
      squares += select(0.0, dot(v[j], v[j]), in_range);
      v[j] *= norm[first + j];
#endif
    }
    let rounded = round_group(v);
    let words = rounded.words;
#if SG >= 4
    let next = vec2u(subgroupShuffleXor(words[0], 1u), subgroupShuffleXor(words[1], 1u));
    if (in_range && i % 2u == 0u) { // store whole vectors: writing one component may race with writes of the others
      xq[xq_at(g, i % LANES / 2u)] = vec4u(words[0], words[1], next.x, next.y);
    }
#else
    if (in_range) {
      xq[xq_at(g, 0u)] = vec4u(words[0], words[1], words[2], words[3]);
      xq[xq_at(g, 1u)] = vec4u(words[4], words[5], words[6], words[7]);
    }
#endif
    if (in_range && i % LANES == 0u) {
      xq_scale[g] = rounded.scale;
    }
  }
  return squares;
}
