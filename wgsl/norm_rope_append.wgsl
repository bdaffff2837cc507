// Norm and rotation (RoPE) of queries and keys; appends keys and values to the cache. x stacks the q, k and v rows of each
// token; y gets the queries. Grid (heads of q, k and v, tokens): a workgroup per head, a thread per quad of rows.
#param HEAD_DIM
#param ROPE_DIM // leading dimensions of a head that are rotated
#param NEOX // 1: dimension i pairs with i + ROPE_DIM / 2; 0: with its neighbour
#param WG // a power of two, at least HEAD_DIM / 4
#param ACROSS_HEADS // 1: one norm over all query heads, one over all key heads; 0: a norm per head
#param PER_HEAD // 1: each head has weights of its own; 0: query heads share weights, and key heads do
#param MEAN // 1: layer norm; 0: RMS norm
#param BIAS // 1: a bias is added
#param NORM_VALUES // 1: each value head is normalised, too, without weights
#param SG

struct Params {
  q_rows: u32,
  kv_rows: u32,
  rope_scale: f32, // factor on rotated queries and keys (YaRN), else 1
  x_stride: u32,
  y_stride: u32,
  eps: f32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
@bind var<storage, read> norm: array<f32>; // weights of queries, then of keys
#if BIAS
@bind var<storage, read> bias: array<f32>; // of queries, then of keys
#endif
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)
#include "lib/rope.wgsl"
#include "lib/reduce.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  if (m >= count()) { // uniform: state does not change within a dispatch; steps with drafts have rows without a token
    return;
  }
  let row = stored_row(m); // early: the loads overlap with the sums
  let head = wid.x * HEAD_DIM;
  let x0 = m * p.x_stride;
  let key = head >= p.q_rows;
  var first = head; // first of the rows that are normalised together
  var count = HEAD_DIM;
  let weights = select(select(0u, HEAD_DIM, key), head, PER_HEAD == 1u);
#if ACROSS_HEADS
  first = select(0u, p.q_rows, key);
  count = select(p.q_rows, p.kv_rows, key);
#endif
  let weighted = head < p.q_rows + p.kv_rows;
  let normed = weighted || NORM_VALUES == 1u;
  var mean = 0.0;
#if MEAN
  if (normed) {
    for (var i = t; i < count; i += WG) {
      mean += x[x0 + first + i];
    }
  }
  mean = workgroup_sum(mean, t) / f32(count);
#endif
  var sum = 0.0;
  if (normed) {
    for (var i = t; i < count; i += WG) {
      let v = x[x0 + first + i] - mean;
      sum += v * v;
    }
  }
  let scale = inverseSqrt(workgroup_sum(sum, t) / f32(count) + p.eps);
  if (t >= QUADS) {
    return;
  }
  let i = head + 4u * t;
  let a = rope_row(i);
  let b = rope_row(i + 2u);
  var v = vec4f(x[x0 + a], x[x0 + a + 1u], x[x0 + b], x[x0 + b + 1u]);
  if (!weighted) {
#if NORM_VALUES
    v *= scale;
#endif
  } else {
    let wa = weights + a - head;
    let wb = weights + b - head;
    let by = vec4f(norm[wa], norm[wa + 1u], norm[wb], norm[wb + 1u]);
#if AFTER
    v = (v - mean) * scale;
    rotated_by = by;
#else
    v = (v - mean) * scale * by;
#endif
#if BIAS
    v += vec4f(bias[wa], bias[wa + 1u], bias[wb], bias[wb + 1u]);
#endif
  }
  rope_store(i / 4u, v, rope_rotation(i / 4u, m), row, m * p.y_stride);
}
