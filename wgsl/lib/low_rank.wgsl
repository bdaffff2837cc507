// What adapters add to a product (py_engine/plan/low_rank.py): sums of scale * dot(B[row], h[m, columns of the entry]) over
// the entries that have a row. h has A x of all adapters, side by side. Every token has the scales of its sequence.
// Params must have h_stride, the floats between tokens of h.
#param QUANT // fragment of wgsl/quants that reads B
#param COLS // columns of B: the rank
#param ENTRIES
#param TM // tokens of a workgroup
#param THREADS
#param PRELOAD // columns of h; 0: too many for a workgroup's memory, or TM is not 1

#include "lib/low_rank_place.wgsl"
#include "lib/low_rank_entries.wgsl"
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read> h: array<f32>; // (n, h_stride)

#if PRELOAD
// A workgroup first loads all that it may need at once. Afterwards it only waits for its rows of B.
#param MAX_SEQUENCES
var<workgroup> held_entries: array<Entry, ENTRIES>;
var<workgroup> held_scales: array<vec2f, MAX_SEQUENCES * ADAPTERS>;
var<workgroup> held_h: array<f32, PRELOAD>;
#endif

fn entry_at(e: u32) -> Entry {
#if PRELOAD
  return held_entries[e];
#else
  return entries[e];
#endif
}

fn scale_at(i: u32) -> vec2f {
#if PRELOAD
  return held_scales[i];
#else
  return scales[i];
#endif
}

fn h_at(m: u32, column: u32) -> f32 {
#if PRELOAD
  return held_h[min(column, PRELOAD - 1u)];
#else
  return h[m * p.h_stride + column];
#endif
}

const SIZE = W_GROUPS * 8u; // vec4 of an entry's columns of h
var<workgroup> scaled: array<vec4f, TM * ENTRIES * SIZE>; // h times the scales, padded with zeros
var<workgroup> used: array<u32, ENTRIES>; // 1: a token of the workgroup has a scale other than 0

fn scale_of(place: Place, entry: Entry) -> f32 {
  let scale = scale_at(place.seq * ADAPTERS + entry.adapter);
  return select(0.0, scale.x * entry.factor, place.exists && place.pos >= scale.y);
}

// Load the columns of h of tokens m0, m0 + 1, ..., times the scales, for all threads of a workgroup.
fn low_rank_load(m0: u32, t: u32) {
#for k in TM
  let place${k} = place_of(m0 + ${k}u);
#endfor
#if PRELOAD
  for (var i = t; i < PRELOAD; i += THREADS) {
    held_h[i] = h[m0 * p.h_stride + i];
  }
  for (var i = t; i < MAX_SEQUENCES * ADAPTERS; i += THREADS) {
    held_scales[i] = scales[i];
  }
  for (var e = t; e < ENTRIES; e += THREADS) {
    held_entries[e] = entries[e];
  }
  workgroupBarrier();
#endif
  for (var e = t; e < ENTRIES; e += THREADS) {
    let entry = entry_at(e);
    var some = 0u;
#for k in TM
    some |= select(0u, 1u, scale_of(place${k}, entry) != 0.0);
#endfor
    used[e] = some;
  }
  for (var i = t; i < TM * ENTRIES * SIZE; i += THREADS) {
    let m = m0 + i / (ENTRIES * SIZE);
    let entry = entry_at(i / SIZE % ENTRIES);
#if TM == 1
    let scale = scale_of(place0, entry);
#else
    let scale = scale_of(place_of(m), entry);
#endif
    let at = entry.h + 4u * (i % SIZE);
    let left = COLS - min(COLS, 4u * (i % SIZE)); // what follows in h is another entry's, or undefined
    let values = select(vec4f(0), vec4f(h_at(m, at), h_at(m, at + 1u), h_at(m, at + 2u), h_at(m, at + 3u)), vec4u(0, 1, 2, 3) < vec4u(left));
    scaled[i] = select(vec4f(0), scale * values, vec4<bool>(scale != 0.0)); // 0 times an undefined value may be NaN
  }
  workgroupBarrier();
}

// What is added to a row of the product of token m, which was loaded: the bits of low_rank_at().
fn low_rank_row(m: u32, row: u32) -> f32 {
  var sum = 0.0;
  for (var e = 0u; e < ENTRIES; e++) {
    let entry = entry_at(e);
    let at = row - entry.y; // wraps around below the entry's first row
    if (used[e] == 0u || at >= entry.rows) {
      continue;
    }
    for (var g = 0u; g < W_GROUPS; g++) {
      let w = w_group(entry.b + at, g);
      var found = 0.0;
#for i in 8 if COLS > 28 else (COLS + 3) // 4
      found += dot(w[${i}], scaled[e * SIZE + g * 8u + ${i}u]);
#endfor
      sum += found;
    }
  }
  return sum;
}

// What is added to four rows of the product of token m, which was loaded.
fn low_rank_at(m: u32, rows: vec4u) -> vec4f {
  var sums = vec4f(0);
  for (var e = 0u; e < ENTRIES; e++) {
    let entry = entry_at(e);
    let at = rows - entry.y; // wraps around below the entry's first row
    let inside = at < vec4u(entry.rows);
    if (used[e] == 0u || !any(inside)) {
      continue;
    }
    let row = entry.b + min(at, vec4u(entry.rows - 1u));
    for (var g = 0u; g < W_GROUPS; g++) {
      // The loads of all rows are in flight together.
#for r in 4
      let w${r} = w_group(row[${r}], g);
#endfor
      var found = vec4f(0);
#for i in 8 if COLS > 28 else (COLS + 3) // 4
      {
        let factor = scaled[e * SIZE + g * 8u + ${i}u];
        found += vec4f(dot(w0[${i}], factor), dot(w1[${i}], factor), dot(w2[${i}], factor), dot(w3[${i}], factor));
      }
#endfor
      sums += select(vec4f(0), found, inside);
    }
  }
  return sums;
}
