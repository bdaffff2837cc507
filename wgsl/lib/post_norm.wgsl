// A product's x is x + post / rms(post) * post_norm: the norm after the previous block, whose result is added to the
// residual stream. The workgroups of the first rows store the sum in x_next. The bits are those of norm.wgsl with ADD and
// POST_THREADS threads: each slice of as many threads adds the same squares in the same order.
#param POST_THREADS // 0: x is x
#include "lib/reduce_slices.wgsl" with SLICE=POST_THREADS slice_sum=post_sum reduce_memory=post_memory
@bind var<storage, read> post: array<vec4f>; // (n, COLS)
@bind var<storage, read> post_norm: array<vec4f>; // (COLS)
@bind var<storage, read_write> x_next: array<vec4f>; // (n, COLS)
const POST_VECS = COLS / 4u;

// This thread's part of the sum of squares of the token whose first vector is x0.
fn post_squares(x0: u32, t: u32) -> f32 {
  var sum = 0.0;
  for (var i = t % POST_THREADS; i < POST_VECS; i += POST_THREADS) {
    sum += dot(post[x0 + i], post[x0 + i]);
  }
  return sum;
}

// 1 / rms of a token, from all threads' parts.
fn post_scale(squares: f32, t: u32) -> f32 {
  return inverseSqrt(post_sum(squares, t) / f32(COLS) + p.eps);
}

// Vector i of the sum, which is vector i % POST_VECS of its token, in two steps: the loads need not wait for the scale.
fn post_fetch(i: u32) -> array<vec4f, 2> {
  return array(post[i] * post_norm[i % POST_VECS], x[i]);
}

fn post_added(fetched: array<vec4f, 2>, scale: f32) -> vec4f {
  return fma(fetched[0], vec4f(scale), fetched[1]);
}
