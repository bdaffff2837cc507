// lib/low_rank.wgsl for one token and adapters that change the same rows with the same rank (plan/low_rank_entries.py).
// Where h = A x is and where a row of B is then follow from the adapter's number. So there are three dependent loads: the
// token's sequence, the scales, then B and h together. No barrier.
#param QUANT // fragment of wgsl/quants that reads B
#param COLS // columns of B: the rank
#param TM // tokens of a workgroup: 1
#param PARTS // runs of rows of the product that an adapter changes, each with its own columns of h
#param RUNS // of each part a vec4u: first row of the product, rows, first row of the adapter's B, first of its columns of h
#param USERS // the numbers of these adapters
#param USED // how many they are
#param ROWS // of B, of an adapter
#param EACH // columns of h of an adapter
#include "lib/low_rank_place.wgsl"
#include "lib/low_rank_entries.wgsl"
const W_GROUPS = (COLS + 31u) / 32u;
const RUN = array<vec4u, PARTS>(
#text RUNS
);
const USER = array<u32, USED>(
#text USERS
);
#include "quants/${QUANT}.wgsl"
@bind var<storage, read> h: array<vec4f>; // (n, h_stride)

fn low_rank_load(m0: u32, t: u32) {}

// The scale of one of the adapters for a token; 0 where it does not count.
fn scale_of(place: Place, i: u32) -> f32 {
  let scale = scales[place.seq * ADAPTERS + USER[i]];
  return select(0.0, scale.x * entries[i * PARTS].factor, place.exists && place.pos >= scale.y);
}

// Of the run that has a row: the row of an adapter's B, and the column of its h. The first is ROWS if none has it.
fn run_of(row: u32) -> vec2u {
  var found = vec2u(ROWS, 0u);
#for i in PARTS
  found = select(found, vec2u(row - RUN[${i}].x + RUN[${i}].z, RUN[${i}].w), row - RUN[${i}].x < RUN[${i}].y);
#endfor
  return found;
}

// What is added to a row of the product of token m: the bits of low_rank_at().
fn low_rank_row(m: u32, row: u32) -> f32 {
  let place = place_of(m);
  let run = run_of(row);
  var sum = 0.0;
  for (var i = 0u; i < USED; i++) {
    let scale = scale_of(place, i);
    if (scale == 0.0 || run.x == ROWS) {
      continue;
    }
    let h0 = (m * p.h_stride + i * EACH + run.y) / 4u;
    for (var g = 0u; g < W_GROUPS; g++) {
      let w = w_group(i * ROWS + run.x, g);
      var found = 0.0;
#for i in 8 if COLS > 28 else COLS // 4
      found += dot(w[${i}], scale * h[h0 + g * 8u + ${i}u]);
#endfor
      sum += found;
    }
  }
  return sum;
}

// What is added to four rows of the product of token m, all of one head, so of one run.
fn low_rank_at(m: u32, rows: vec4u) -> vec4f {
  let place = place_of(m);
  let run = run_of(rows.x);
  var sums = vec4f(0);
  for (var i = 0u; i < USED; i++) {
    let scale = scale_of(place, i);
    if (scale == 0.0 || run.x == ROWS) {
      continue;
    }
    let at = i * ROWS + run.x + rows - rows.x;
    let h0 = (m * p.h_stride + i * EACH + run.y) / 4u;
    for (var g = 0u; g < W_GROUPS; g++) {
      // The loads of all rows are in flight together.
#for r in 4
      let w${r} = w_group(at[${r}], g);
#endfor
      var found = vec4f(0);
#for i in 8 if COLS > 28 else COLS // 4
      {
        let factor = scale * h[h0 + g * 8u + ${i}u];
        found += vec4f(dot(w0[${i}], factor), dot(w1[${i}], factor), dot(w2[${i}], factor), dot(w3[${i}], factor));
      }
#endfor
      sums += found;
    }
  }
  return sums;
}
