// y = softmax(q k^T * scale) v for a batch of tokens, in one pass with a running softmax (Dao et al. 2022).
// attention_decode.wgsl serves small batches.
//
// Grid (SHARE * key/value heads, tiles of TQ tokens). A workgroup has ROWS rows, TQ tokens x the G query heads that share a
// key/value head, so keys and values are loaded once for all of them, TS positions at a time. What limits it are loads from
// workgroup memory, so a thread computes the scores of SR rows x 4 positions, and VR rows x VC vectors of the weighted sums,
// which stay in its registers. Two barriers per tile, where keys and values have their own memory: the threads of a row exchange
// their largest scores, then weights.
//
// Few tokens late in a context have too few tiles to occupy a GPU. With SPLIT, that many workgroups (grid z) share the
// positions that a tile sees, and attention_merge.wgsl joins their sums.
#param HEAD_DIM
#param G // query heads per key/value head
#param SHARE // workgroups that share a key/value head, each with G of its query heads
#param TQ // tokens of a tile
#param ROWS // TQ * G, rounded up to whole threads
#param TS // positions of a tile, a power of two and a divisor of PAGE
#param WG
#param SR // rows of a thread's scores
#param VR // rows of a thread's sums
#param VC // vectors of a thread's sums
#param TEAMS // groups of threads that share a tile's sums, each of its own positions
#param CHAIN // vectors whose products are summed in f16, at most 8, so that it errs by a thousandth; they divide a head
#param UNUSED // vectors between rows in workgroup memory
#param AHEAD // keys and values are loaded into registers: 2: before the scores, 1: before the softmax; 0: neither
#param ONE_BUFFER // 1: keys and values take turns in the same workgroup memory
#param HALF_SUMS // 1: values are summed in f16, eight at a time
#param SUMS32 // 1: products and sums are in f32, even if inputs are stored in f16
#param LOOPED // 1: fewer loops are unrolled, since software GPUs take seconds to compile that
#param SOFT_CAP // cap of the scores; 0: none
#param SPLIT // workgroups that share a tile's positions; 0: one has all
#param SINKS // 1: each head has an attention sink, a logit without a value that joins the softmax
#param ALIBI // 1: scores fall with the distance, by a slope per head (ALiBi, Press et al. 2022)
#param RELATIVE // not 0: scores get a bias (lib/relative_bias.wgsl)
#param INDEXED // not 0: a token attends to the positions of its bits in a mask, which has so many words a token
#param Y16 // 1: y is f16
#param F16
#include "lib/attention_inputs.wgsl"
#include "lib/attention_fetch.wgsl"
#include "lib/visible.wgsl"
#if ALIBI
@bind var<storage, read> slopes: array<f32>; // (n_head)
#endif
#if RELATIVE
#include "lib/relative_bias.wgsl"
#endif
#if INDEXED
@bind var<storage, read> index_mask: array<u32>; // (n, INDEXED)
#endif
#if SPLIT
#include "lib/tile_split.wgsl"
@bind var<storage, read_write> sums: array<f32>; // see sums_at()
#else
#if Y16
alias Output = vec4<f16>;
#else
alias Output = vec4f;
#endif
@bind var<storage, read_write> y: array<Output>; // (n, y_stride)
#endif

const ROW_VECS = (max(VECS, VALUE_VECS) + CHAIN - 1u) / CHAIN * CHAIN; // values may be wider than keys
// A row of queries, keys or values. Its length lets eight consecutive rows be in different banks. Indices are such that
// compilers clamp them outside of the loops: they add clamps that would cost more than the products.
struct Row {
  parts: array<array<h4, CHAIN>, ROW_VECS / CHAIN>,
#if UNUSED
  unused: array<h4, UNUSED>,
#endif
}
const QUADS = TS / 4u; // groups of four positions
const KEY_LANES = QUADS; // threads that share a row's scores
const ROW_LANES = ROWS / SR;
const SUM_ROW_LANES = ROWS / VR;
const COLUMN_LANES = (VALUE_VECS + VC - 1u) / VC; // threads that share a row's sums
const TEAM = SUM_ROW_LANES * COLUMN_LANES; // threads of a team
#if TS > 4 and HALF_SUMS
const SUMMED = 2u; // groups of positions whose weighted values are summed in f16
#else
const SUMMED = 1u;
#endif
const NO_SCORE = -1e30; // below every score
const MASKED = -2e30; // exp(MASKED - NO_SCORE) is 0
const BUFFERS = select(2u, 1u, ONE_BUFFER == 1u);

var<workgroup> qs: array<Row, ROWS>;
var<workgroup> kv: array<array<array<Row, 4>, QUADS>, BUFFERS>; // keys, see key_place(), and values
var<workgroup> weights: array<array<h4, QUADS>, ROWS>; // see weights_at()
var<workgroup> tops: array<array<f32, KEY_LANES>, ROWS>; // of each thread's scores; at the end, sums of its weights
#if TEAMS > 1
var<workgroup> team_sums: array<vec4f, TEAM>;
#endif
var<workgroup> row_factor: array<f32, ROWS>; // that a row's sums are multiplied with

// Where a row's weights of the positions from 4 * quad on are. Neighbouring rows have them in different banks.
fn weights_at(row: u32, quad: u32) -> u32 {
  return quad ^ (row % QUADS);
}

// The row that a key is in. A thread's keys are four consecutive positions; those that neighbouring threads read at the
// same time are neighbours here.
fn key_place(s: u32) -> u32 {
  return s % 4u * KEY_LANES + s / 4u;
}

fn store_key(e: u32, key: h4) {
  let row = key_place(e / VECS);
  kv[0][row / 4u][row % 4u].parts[e % VECS / CHAIN][e % CHAIN] = key;
}

fn store_value(e: u32, value: h4) {
  let s = e / VALUE_VECS;
  let c = e % VALUE_VECS;
  kv[BUFFERS - 1u][s / 4u][s % 4u].parts[c / CHAIN][c % CHAIN] = value;
}

// The sum of a row's weights, from `tops`.
fn row_total(row: u32) -> f32 {
  var total = 0.0;
#for j in TS // 4
  total += tops[row][${j}u];
#endfor
  return total;
}

// Rows are all of a tile's, also those after the batch's last token, which are computed as if they were its.
fn token_of(m0: u32, row: u32) -> u32 {
  return min(m0 + row / G, state.tokens[0].n - 1u);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let state = state.tokens[0];
  let head = wid.x;
  let kv_head = head / SHARE;
  let m0 = wid.y * TQ;
  if (m0 >= state.n) { // uniform: state does not change within a dispatch
    return;
  }
  let last_token = min(m0 + TQ, state.n) - 1u;
  let first_seen = visible(m0);
  let last_seen = visible(last_token);
  let seen_by_tile = visible_to(m0, last_token);
#if PACKED and PREFIXES
  let tile_unseen = unseen(m0);
  let one_segment = tile_unseen.y == own_begin(last_token);
#endif
#if SPLIT
  let splits = splits_of(seen_by_tile);
  let begin = splits.x + wid.z * splits.y;
  let end = min(seen_by_tile.y, begin + splits.y);
  if (begin >= end) {
    return;
  }
#else
  let begin = seen_by_tile.x / TS * TS; // skips tiles that no row sees
  let end = seen_by_tile.y;
#endif
  for (var i = t; i < ROWS * VECS; i += WG) {
    let row = min(i / VECS, TQ * G - 1u);
    let at = token_of(m0, row) * (p.q_stride / 4u) + ((p.head0 + head) * G + row % G) * VECS + i % VECS;
    qs[i / VECS].parts[i % VECS / CHAIN][i % CHAIN] = h4(vec4f(q[at]) * p.scale);
  }
  let first_page = tile_page(begin);
  let first_last = last_filled(begin, end);
  for (var e = t; e < TS * VECS; e += WG) {
    store_key(e, converted(fetched(false, first_page, min(begin + e / VECS, first_last), kv_head, e % VECS)));
  }
  let key_lane = t % KEY_LANES;
  let row_lane = min(t / KEY_LANES, ROW_LANES - 1u);
  let scores_rows = t < ROW_LANES * KEY_LANES;
#for i in SR
#if SINKS
  var top${i} = sinks[(p.head0 + head) * G + (${i}u * ROW_LANES + row_lane) % G];
  var total${i} = select(0.0, 1.0, key_lane == 0u);
#else
  var top${i} = NO_SCORE;
  var total${i} = 0.0;
#endif
#endfor
#for j in 4
  let key_row${j} = ${j}u * KEY_LANES + key_lane;
#endfor
  let team = t / TEAM;
  let column = t % COLUMN_LANES;
  let sum_lane = t % TEAM / COLUMN_LANES;
  let sums_rows = t < TEAMS * TEAM;
#for c in VC
  let column${c} = min(${c}u * COLUMN_LANES + column, VALUE_VECS - 1u);
#for i in VR
  var sum${i}_${c} = vec4f(0);
#endfor
#endfor
  var next_page = first_page; // of the keys that are loaded next
  var next_last = first_last;
  workgroupBarrier();
  for (var s0 = begin; s0 < end; s0 += TS) {
    let page = next_page;
    let last = next_last;
    next_page = tile_page(min(s0 + TS, end - 1u));
    next_last = last_filled(min(s0 + TS, end - 1u), end);
#if AHEAD == 2
#include "lib/attention_load_values.wgsl"
#if not ONE_BUFFER
#include "lib/attention_load_keys.wgsl"
#endif
#endif
#for i in SR
    var score${i} = vec4f(0);
#endfor
    if (scores_rows) {
      for (var c = 0u; c < VECS / CHAIN; c++) {
#if F16 and not SUMS32
#for i in SR
#for j in 4
        var part${i}_${j} = h4(0);
#endfor
#endfor
#endif
#if LOOPED
        for (var d = 0u; d < CHAIN; d++) {
#include "lib/attention_products.wgsl"
        }
#else
#for k in CHAIN
        {
          const d = ${k}u;
#include "lib/attention_products.wgsl"
        }
#endfor
#endif
#if F16 and not SUMS32
#for i in SR
#for j in 4
        {
          let sum = vec4f(part${i}_${j});
          score${i}[${j}] += sum.x + sum.y + sum.z + sum.w;
        }
#endfor
#endfor
#endif
      }
#if INDEXED
      const all_visible = false;
#else
      var all_visible = s0 >= last_seen.x && s0 + TS <= first_seen.y; // to every row
#if PACKED and PREFIXES
      all_visible &= one_segment && (s0 + TS <= tile_unseen.x || s0 >= tile_unseen.y);
#endif
#endif
#for i in SR
      {
        let row = ${i}u * ROW_LANES + row_lane;
        let at = s0 + 4u * key_lane + vec4u(0, 1, 2, 3);
#if SOFT_CAP
        score${i} = vec4f(capped(score${i}.x, SOFT_CAP), capped(score${i}.y, SOFT_CAP), capped(score${i}.z, SOFT_CAP), capped(score${i}.w, SOFT_CAP));
#endif
#if ALIBI
        score${i} -= slopes[head * G + row % G] * abs(f32(state.pos + m0 + row / G) - vec4f(at));
#endif
#if RELATIVE
        let distance = vec4i(at) - i32(state.pos + m0 + row / G);
#for j in 4
        score${i}[${j}] += relative_bias(distance[${j}], head * G + row % G, p.n_head_kv * SHARE * G);
#endfor
#endif
        if (!all_visible) {
          let token = token_of(m0, row);
          let seen = visible(token);
          var shown = (at >= vec4u(seen.x)) & (at < vec4u(seen.y));
#if PACKED and PREFIXES
          let hidden = unseen(token);
          shown &= (at < vec4u(hidden.x)) | (at >= vec4u(hidden.y));
#endif
#if INDEXED
          let chosen = index_mask[token * INDEXED + at.x / 32u] >> (at.x % 32u); // four positions share a word
          shown &= ((vec4u(chosen) >> vec4u(0, 1, 2, 3)) & vec4u(1)) == vec4u(1);
#endif
          score${i} = select(vec4f(MASKED), score${i}, shown);
        }
        tops[row][key_lane] = max(max(score${i}.x, score${i}.y), max(score${i}.z, score${i}.w));
      }
#endfor
    }
    workgroupBarrier();
#if AHEAD == 1
#include "lib/attention_load_values.wgsl"
#if not ONE_BUFFER
#include "lib/attention_load_keys.wgsl"
#endif
#endif
    if (scores_rows) {
#for i in SR
      {
        let row = ${i}u * ROW_LANES + row_lane;
        var top = top${i};
#for j in TS // 4
        top = max(top, tops[row][${j}u]);
#endfor
        let factor = exp(top${i} - top);
        let e = exp(score${i} - top);
        top${i} = top;
        total${i} = fma(total${i}, factor, e.x + e.y + (e.z + e.w));
        weights[row][weights_at(row, key_lane)] = h4(e);
        if (key_lane == 0u) {
          row_factor[row] = factor;
        }
      }
#endfor
    }
#if AHEAD
#for i in (TS * VALUE_DIM // 4 + WG - 1) // WG
    if (t + ${i}u * WG < TS * VALUE_VECS) {
      store_value(value_at${i}, converted(value${i}));
    }
#endfor
#else
    for (var e = t; e < TS * VALUE_VECS; e += WG) {
      let s = min(s0 + e / VALUE_VECS, last);
      store_value(e, converted(fetched(true, page, s, kv_head, e % VALUE_VECS)));
    }
#endif
#if not ONE_BUFFER
#include "lib/attention_store_keys.wgsl"
#endif
    workgroupBarrier();
#if ONE_BUFFER and AHEAD
#include "lib/attention_load_keys.wgsl"
#endif
#include "lib/attention_weighted_sums.wgsl"
#if ONE_BUFFER
    workgroupBarrier();
#include "lib/attention_store_keys.wgsl"
    workgroupBarrier();
#endif
  }
#for team in 1, TEAMS
#for i in VR
#for c in VC
  if (team == ${team}u && sums_rows) {
    team_sums[t % TEAM] = sum${i}_${c};
  }
  workgroupBarrier();
  if (team == 0u) {
    sum${i}_${c} += team_sums[t % TEAM];
  }
  workgroupBarrier();
#endfor
#endfor
#endfor
  if (scores_rows) {
#for i in SR
    tops[${i}u * ROW_LANES + row_lane][key_lane] = total${i};
#endfor
  }
  workgroupBarrier();
#if SPLIT
  if (scores_rows && key_lane == 0u) {
#for i in SR
    {
      let row = ${i}u * ROW_LANES + row_lane;
      let m = m0 + row / G;
      if (row < TQ * G && m < state.n) {
        let at = sums_at(wid.z, m, state.n, head * G + row % G, p.n_head_kv * SHARE * G) + VALUE_DIM;
        sums[at] = top${i};
        sums[at + 1u] = row_total(row);
      }
    }
#endfor
  }
#endif
  if (t < TEAM) {
#for i in VR
    {
      let row = ${i}u * SUM_ROW_LANES + sum_lane;
      let m = m0 + row / G;
      if (row < TQ * G && m < state.n) {
#if SPLIT
        let at = sums_at(wid.z, m, state.n, head * G + row % G, p.n_head_kv * SHARE * G);
#else
        let at = m * (p.y_stride / 4u) + ((p.head0 + head) * G + row % G) * VALUE_VECS;
        let total = row_total(row);
#endif
#for c in VC
        if (${c}u * COLUMN_LANES + column < VALUE_VECS) {
#if SPLIT
#for j in 4
          sums[at + 4u * column${c} + ${j}u] = sum${i}_${c}[${j}];
#endfor
#else
          y[at + column${c}] = Output(sum${i}_${c} / total);
#endif
        }
#endfor
      }
    }
#endfor
  }
}
