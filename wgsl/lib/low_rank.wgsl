// What adapters add to a product (py_engine/plan/low_rank.py): sums of scale * dot(B[row], h[m, columns of the entry]) over
// the entries that have a row. h has A x of all adapters, side by side. Every token has the scales of its sequence.
// Params must have h_stride, the floats between tokens of h.
#param QUANT // fragment of wgsl/quants that reads B
#param COLS // columns of B: the rank
#param ENTRIES
#param ADAPTERS // of the plan
#param TM // tokens of a workgroup
#param LAST // 1: the batch's last token only, which is row 0 of h and of the product
#param THREADS

struct Entry {
  y: u32, // first row of the product
  rows: u32,
  b: u32, // row of B for it
  h: u32, // first column of h
  adapter: u32,
  factor: f32, // alpha / rank
}
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read> entries: array<Entry>;
@bind var<storage, read> scales: array<vec2f>; // (sequences, ADAPTERS): scale, and the first position where it counts
@bind var<storage, read> h: array<f32>; // (n, h_stride)

const SIZE = W_GROUPS * 8u; // vec4 of an entry's columns of h
var<workgroup> scaled: array<vec4f, TM * ENTRIES * SIZE>; // h times the scales, padded with zeros
var<workgroup> used: array<u32, ENTRIES>; // 1: a token of the workgroup has a scale other than 0

// Index of row m's token in the batch.
fn token_of(m: u32) -> u32 {
#if LAST
  return count() - 1u;
#else
  return m;
#endif
}

fn is_row(m: u32) -> bool {
#if LAST
  return m == 0u;
#else
  return m < count();
#endif
}

fn scale_of(m: u32, adapter: u32, factor: f32) -> f32 {
  let token = token_of(m);
  let scale = scales[seq_of(token) * ADAPTERS + adapter];
  return select(0.0, scale.x * factor, is_row(m) && f32(pos_of(token)) >= scale.y);
}

// Load the columns of h of tokens m0, m0 + 1, ..., times the scales. A barrier must follow.
fn low_rank_load(m0: u32, t: u32) {
  for (var e = t; e < ENTRIES; e += THREADS) {
    let entry = entries[e];
    var some = 0u;
#for k in TM
    some |= select(0u, 1u, scale_of(m0 + ${k}u, entry.adapter, entry.factor) != 0.0);
#endfor
    used[e] = some;
  }
  for (var i = t; i < TM * ENTRIES * SIZE; i += THREADS) {
    let m = m0 + i / (ENTRIES * SIZE);
    let entry = entries[i / SIZE % ENTRIES];
    let scale = scale_of(m, entry.adapter, entry.factor);
    let at = m * p.h_stride + entry.h + 4u * (i % SIZE);
    let left = COLS - min(COLS, 4u * (i % SIZE)); // what follows in h is another entry's, or undefined
    let values = select(vec4f(0), vec4f(h[at], h[at + 1u], h[at + 2u], h[at + 3u]), vec4u(0, 1, 2, 3) < vec4u(left));
    scaled[i] = select(vec4f(0), scale * values, vec4<bool>(scale != 0.0)); // 0 times an undefined value may be NaN
  }
}

// What is added to a row of the product of token m0.
fn low_rank_at(row: u32) -> f32 {
  var sum = 0.0;
  for (var e = 0u; e < ENTRIES; e++) {
    let at = row - entries[e].y; // wraps around below the entry's first row
    if (used[e] == 0u || at >= entries[e].rows) {
      continue;
    }
    for (var g = 0u; g < W_GROUPS; g++) {
      let w = w_group(entries[e].b + at, g);
      for (var i = 0u; i < 8u; i++) {
        sum += dot(w[i], scaled[e * SIZE + g * 8u + i]);
      }
    }
  }
  return sum;
}
