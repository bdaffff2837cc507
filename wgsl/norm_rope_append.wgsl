// rope_append.wgsl with a norm of queries and keys before the rotation: a workgroup a head, a thread a quad of rows.
// The rows of each token lie in x, stacked; its queries go to y.
#param HEAD_DIM
#param ROPE_DIM
#param NEOX
#param WG // a power of two, at least HEAD_DIM / 4
#param WIDE // 1: the norm is of all queries, or keys, at once; 0: of each head
#param OWN // 1: each head has weights of its own; 0: a query head's and a key head's
#param MEAN // 1: the layer norm, of rows less their mean; 0: the RMS norm
#param BIAS
#param VALUES // 1: each value head is normalised, too, without weights
#param SG

struct Params {
  q_rows: u32,
  kv_rows: u32,
  rope_scale: f32, // of the rotated length (YaRN), else 1
  x_stride: u32,
  y_stride: u32,
  eps: f32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
@bind var<storage, read> norm: array<f32>; // queries' weights, keys' weights
#if BIAS
@bind var<storage, read> bias: array<f32>; // likewise
#endif
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)
#include "lib/rope.wgsl"
#include "lib/reduce.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  let head = wid.x * HEAD_DIM;
  let x0 = m * p.x_stride;
  let key = head >= p.q_rows;
  var first = head; // of the rows that are normalised together
  var count = HEAD_DIM;
  let weights = select(select(0u, HEAD_DIM, key), head, OWN == 1u);
#if WIDE
  first = select(0u, p.q_rows, key);
  count = select(p.q_rows, p.kv_rows, key);
#endif
  let weighted = head < p.q_rows + p.kv_rows;
  let normed = weighted || VALUES == 1u;
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
#if VALUES
    v *= scale;
#endif
  } else {
    let wa = weights + a - head;
    let wb = weights + b - head;
    v = (v - mean) * scale * vec4f(norm[wa], norm[wa + 1u], norm[wb], norm[wb + 1u]);
#if BIAS
    v += vec4f(bias[wa], bias[wa + 1u], bias[wb], bias[wb + 1u]);
#endif
  }
  rope_store(i / 4u, v, rope_turns(i / 4u, m), m, m * p.y_stride);
}
