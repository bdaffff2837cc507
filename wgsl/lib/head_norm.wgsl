// Norm of a head of x's stacked q, k and v rows, by a slice of SLICE threads.
#param ACROSS_HEADS // 1: one norm over all query heads, one over all key heads; 0: a norm per head
#param PER_HEAD // 2: each query head has a single weight; 1: heads have weights of their own; 0: they share them
#param MEAN // 1: layer norm; 0: RMS norm
#param BIAS // 1: a bias is added
#param NORM_VALUES // 1: each value head is normalised, too, without weights
#param ALONE // 1: only queries are normalised; 2: only keys; 0: both
#param AFTER // 1: the weights are factors of rotated queries and keys, so normed() leaves them to its caller
@bind var<storage, read> norm: array<f32>; // weights of queries, then of keys
#if BIAS
@bind var<storage, read> bias: array<f32>; // of queries, then of keys
#endif
#include "lib/reduce_slices.wgsl"

struct Moments {
  mean: f32, // 0 for an RMS norm
  scale: f32, // 1 / deviation
}

// Moments of the head that begins with row `head` of the token whose rows begin at x0. All threads of the workgroup call it.
fn head_moments(head: u32, x0: u32, t: u32) -> Moments {
  var first = head; // first of the rows that are normalised together
  var count = HEAD_DIM;
#if ACROSS_HEADS
  let key = head >= p.q_rows;
  first = select(0u, p.q_rows, key);
  count = select(p.q_rows, p.kv_rows, key);
#endif
  let normalised = head < p.q_rows + p.kv_rows || NORM_VALUES == 1u;
  var mean = 0.0;
#if MEAN
  if (normalised) {
    for (var i = t % SLICE; i < count; i += SLICE) {
      mean += x[x0 + first + i];
    }
  }
  mean = slice_sum(mean, t) / f32(count);
#endif
  var sum = 0.0;
  if (normalised) {
    for (var i = t % SLICE; i < count; i += SLICE) {
      let v = x[x0 + first + i] - mean;
      sum += v * v;
    }
  }
  return Moments(mean, inverseSqrt(slice_sum(sum, t) / f32(count) + p.eps));
}

// A row of a head before its norm, and its weight and bias. Separate from normed(), so that the loads overlap with the sums.
struct HeadRow {
  value: f32,
  weight: f32,
  bias: f32,
}

// Loads a row of the head that begins with row `head`.
fn head_row(row: u32, head: u32, x0: u32) -> HeadRow {
  var out = HeadRow(x[x0 + row], 1.0, 0.0);
#if PER_HEAD == 2
  if (head < p.q_rows) {
    out.weight = norm[head / HEAD_DIM];
  }
#else
  if (head < p.q_rows + p.kv_rows) {
    let at = select(select(0u, HEAD_DIM, head >= p.q_rows), head, PER_HEAD == 1u) + row - head;
    out.weight = norm[at];
#if BIAS
    out.bias = bias[at];
#endif
  }
#endif
  return out;
}

fn normed(row: HeadRow, head: u32, moments: Moments) -> f32 {
  if (head >= p.q_rows + p.kv_rows) {
#if NORM_VALUES
    return row.value * moments.scale;
#else
    return row.value;
#endif
  }
#if ALONE
  if ((head < p.q_rows) != (ALONE == 1u)) {
    return row.value;
  }
#endif
#if AFTER
  var out = (row.value - moments.mean) * moments.scale;
#else
  var out = (row.value - moments.mean) * moments.scale * row.weight;
#endif
#if BIAS
  out += row.bias;
#endif
  return out;
}
