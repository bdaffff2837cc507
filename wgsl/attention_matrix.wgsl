// y = softmax(q k^T * scale) v for a batch of tokens, as attention.wgsl, with subgroup matrices: f16 inputs, f32 sums.
//
// Grid (key/value heads, tiles of TQ tokens). A workgroup has ROWS rows, TQ tokens x G query heads, STRIP of them per
// subgroup, and TS positions at a time. A subgroup keeps its queries and its sums in registers. While it turns scores into
// weights, the values of the same positions and the keys of the next are on their way.
//
// A single row of sums in registers cannot be rescaled. So growth of a row's maximum by up to SLACK is ignored: weights
// then exceed 1, which f16 can hold. Larger growth rescales all sums, through workgroup memory: where it is frequent, as
// with random weights, it takes as long as all the rest.
//
// Few tokens late in a context have too few tiles to occupy a GPU. With SPLIT, that many workgroups (grid z) share the
// positions that a tile sees, and attention_merge.wgsl joins their sums.
#param HEAD_DIM
#param DIM // HEAD_DIM, rounded up to whole matrices; what is added is zeros
#param VDIM // VALUE_DIM, likewise
#param G // query heads per key/value head
#param TQ // tokens of a tile
#param ROWS // TQ * G, rounded up to whole strips
#param STRIP // rows of a subgroup, at most TS
#param TS // positions of a tile; a divisor of PAGE
#param SOFT_CAP // cap of the scores; 0: none
#param SPLIT // workgroups that share a tile's positions; 0: one has all
#param SINKS // 1: each head has an attention sink, a logit without a value that joins the softmax
#param Y16 // 1: y is f16
#param F16
#param SG
#include "lib/subgroup_matrix.wgsl"
#include "lib/attention_inputs.wgsl"
#include "lib/visible.wgsl"
#if SPLIT
#include "lib/tile_split.wgsl"
@bind var<storage, read_write> sums: array<f32>; // see sums_at()
#else
#if Y16
alias Output = f16;
#else
alias Output = f32;
#endif
@bind var<storage, read_write> y: array<Output>; // (n, y_stride)
#endif

const WG = ROWS / STRIP * LANES;
const DIM_VECS = DIM / 4u;
const VDIM_VECS = VDIM / 4u;
const PITCH = DIM + 8u; // the pitches are padded against bank conflicts
const V_PITCH = VDIM + 8u;
const S_PITCH = TS + 4u;
const P_PITCH = TS + 8u;
const ROW_LANES = 4u; // lanes that share a row of scores
const SLACK = 10.0; // a row's scores may exceed its reference by this much before the sums are rescaled; exp(11) is 60,000
const NO_SCORE = -1e30; // below every score
const AT_ONCE = TS / SIDE; // matrices of a strip's sums that `scores` has columns for

var<workgroup> ks: array<f16, TS * PITCH>;
var<workgroup> vs: array<f16, TS * V_PITCH>;
var<workgroup> scores: array<f32, ROWS * S_PITCH>; // also sums, SIDE columns at a time
var<workgroup> weights: array<f16, ROWS * P_PITCH>;
var<workgroup> row_factor: array<f32, ROWS>; // that a row's sums are multiplied with
// [0] is 1 if a row's reference has changed; 16 bytes, to keep the arrays aligned for matrices
var<workgroup> needs_rescale: array<u32, 4>;

// Four dimensions of the key or value at position s of `page`, or at `last`: what is masked must be finite, no more.
fn cached_halves(values: bool, page: u32, s: u32, last: u32, head: u32, c: u32) -> vec4<f16> {
#if NOPE
  let row = min(s, last);
  if (values || c < NOPE / 4u) {
    return vec4<f16>(expanded[expanded_at(values, row, head) + c]);
  }
  return vec4<f16>(cached_key(row_in(page, row) * (ROW / 4u) + c - NOPE / 4u, page));
#else
  if (DIM != HEAD_DIM && c >= VECS) {
    return vec4<f16>();
  }
  let at = (row_in(page, min(s, last)) * p.n_head_kv + head) * VECS + c;
#if KV == "f16"
  if (values) {
    return bitcast<vec4<f16>>(v_cache[at]);
  }
  return bitcast<vec4<f16>>(k_cache[at]);
#else
  if (values) {
    return vec4<f16>(cached_value(at, page));
  }
  return vec4<f16>(cached_key(at, page));
#endif
#endif
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let state = state.tokens[0];
  let head = wid.x;
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
  let sub = t / LANES;
  let lane = t % LANES;
  let r0 = sub * STRIP; // this subgroup's first row
  // Queries, TS rows at a time.
#for i in STRIP // SIDE
#for k in DIM // SIDE
  var q${i}_${k}: Left;
#endfor
#endfor
#for c in (ROWS + TS - 1) // TS
  for (var e = t; e < TS * DIM_VECS; e += WG) {
    let row = min(${c}u * TS + e / DIM_VECS, TQ * G - 1u);
    let m = min(m0 + row / G, state.n - 1u);
    let column = min(e % DIM_VECS, VECS - 1u);
    var v = vec4<f16>(vec4f(q[m * (p.q_stride / 4u) + ((p.head0 + head) * G + row % G) * VECS + column]) * p.scale);
    if (DIM != HEAD_DIM && e % DIM_VECS >= VECS) {
      v = vec4<f16>();
    }
    let to = e / DIM_VECS * PITCH + e % DIM_VECS * 4u;
    ks[to] = v.x;
    ks[to + 1u] = v.y;
    ks[to + 2u] = v.z;
    ks[to + 3u] = v.w;
  }
  workgroupBarrier();
  if (r0 / TS == ${c}u) {
#for i in STRIP // SIDE
#for k in DIM // SIDE
    q${i}_${k} = subgroupMatrixLoad<Left>(&ks, (r0 % TS + ${i}u * SIDE) * PITCH + ${k}u * SIDE, false, PITCH);
#endfor
#endfor
  }
  workgroupBarrier();
#endfor
  // This lane's rows, every LANES / ROW_LANES-th of the strip: the reference of the weights, and their sum.
  let quarter = lane % ROW_LANES;
#for r in STRIP * 4 // LANES
  let row${r} = r0 + ${r}u * (LANES / ROW_LANES) + lane / ROW_LANES;
  let token${r} = min(m0 + row${r} / G, state.n - 1u);
  let seen${r} = visible(token${r});
#if PACKED and PREFIXES
  let hidden${r} = unseen(token${r});
#endif
#if SINKS
  var top${r} = sinks[(p.head0 + head) * G + row${r} % G];
  var total${r} = select(0.0, 1.0, quarter == 0u);
#else
  var top${r} = NO_SCORE;
  var total${r} = 0.0;
#endif
#endfor
#for i in STRIP // SIDE
#for j in VDIM // SIDE
  var sum${i}_${j} = Result();
#endfor
#endfor
  var next_page = tile_page(begin); // of the keys that are loaded next
  var next_last = last_filled(begin, end);
#for i in (TS * DIM // 4 + ROWS // STRIP * LANES - 1) // (ROWS // STRIP * LANES)
  {
    let e = t + ${i}u * WG;
    if (e < TS * DIM_VECS) {
      let v = cached_halves(false, next_page, begin + e / DIM_VECS, next_last, head, e % DIM_VECS);
      let to = min(e, TS * DIM_VECS - 1u) / DIM_VECS * PITCH + e % DIM_VECS * 4u;
      ks[to] = v.x;
      ks[to + 1u] = v.y;
      ks[to + 2u] = v.z;
      ks[to + 3u] = v.w;
    }
  }
#endfor
  if (t == 0u) {
    needs_rescale[0] = 0u;
  }
  workgroupBarrier();
  for (var s0 = begin; s0 < end; s0 += TS) {
    let page = next_page;
    let last = next_last;
    next_page = tile_page(min(s0 + TS, end - 1u));
    next_last = last_filled(min(s0 + TS, end - 1u), end);
#for j in TS // SIDE
    {
#for i in STRIP // SIDE
      var dots${i} = Result();
#endfor
#for k in DIM // SIDE
      {
        let b = subgroupMatrixLoad<Right>(&ks, ${j}u * SIDE * PITCH + ${k}u * SIDE, true, PITCH);
#for i in STRIP // SIDE
        dots${i} = subgroupMatrixMultiplyAccumulate(q${i}_${k}, b, dots${i});
#endfor
      }
#endfor
#for i in STRIP // SIDE
      subgroupMatrixStore(&scores, (r0 + ${i}u * SIDE) * S_PITCH + ${j}u * SIDE, dots${i}, false, S_PITCH);
#endfor
    }
#endfor
    workgroupBarrier();
#for i in (TS * VDIM // 4 + ROWS // STRIP * LANES - 1) // (ROWS // STRIP * LANES)
    let v_at${i} = t + ${i}u * WG;
    let v${i} = cached_halves(true, page, s0 + v_at${i} / VDIM_VECS, last, head, v_at${i} % VDIM_VECS);
#endfor
#for i in (TS * DIM // 4 + ROWS // STRIP * LANES - 1) // (ROWS // STRIP * LANES)
    let k_at${i} = t + ${i}u * WG;
    let k${i} = cached_halves(false, next_page, s0 + TS + k_at${i} / DIM_VECS, next_last, head, k_at${i} % DIM_VECS);
#endfor
    // Whether every row sees all positions of the tile.
    var all_visible = s0 >= last_seen.x && s0 + TS <= first_seen.y;
#if PACKED and PREFIXES
    all_visible &= one_segment && (s0 + TS <= tile_unseen.x || s0 >= tile_unseen.y);
#endif
#for r in STRIP * 4 // LANES
    {
      let at = row${r} * S_PITCH + quarter;
      var top = NO_SCORE;
#for i in TS // 4
      var score${i} = scores[at + ${i}u * ROW_LANES];
#if SOFT_CAP
      score${i} = capped(score${i}, SOFT_CAP);
#endif
      if (!all_visible) {
        let s = s0 + ${i}u * ROW_LANES + quarter;
        var shown = s >= seen${r}.x && s < seen${r}.y;
#if PACKED and PREFIXES
        shown &= s < hidden${r}.x || s >= hidden${r}.y;
#endif
        score${i} = select(NO_SCORE, score${i}, shown);
      }
      top = max(top, score${i});
#endfor
      top = max(top, subgroupShuffleXor(top, 1u));
      top = max(top, subgroupShuffleXor(top, 2u));
      var factor = 1.0;
      if (top > top${r} + SLACK) {
        factor = exp(top${r} - top);
        if (top${r} > NO_SCORE) { // else its sums are zeros
          needs_rescale[0] = 1u;
        }
        top${r} = top;
      }
      total${r} *= factor;
      row_factor[row${r}] = factor;
      let to = row${r} * P_PITCH + quarter;
#for i in TS // 4
      {
        let e = select(0.0, exp(score${i} - top${r}), score${i} > NO_SCORE); // a row may see no position of this tile
        weights[to + ${i}u * ROW_LANES] = f16(e);
        total${r} += e;
      }
#endfor
    }
#endfor
#for i in (TS * DIM // 4 + ROWS // STRIP * LANES - 1) // (ROWS // STRIP * LANES)
    {
      let e = t + ${i}u * WG;
      if (e < TS * DIM_VECS) {
        let to = min(e, TS * DIM_VECS - 1u) / DIM_VECS * PITCH + e % DIM_VECS * 4u;
        ks[to] = k${i}.x;
        ks[to + 1u] = k${i}.y;
        ks[to + 2u] = k${i}.z;
        ks[to + 3u] = k${i}.w;
      }
    }
#endfor
#for i in (TS * VDIM // 4 + ROWS // STRIP * LANES - 1) // (ROWS // STRIP * LANES)
    {
      let e = t + ${i}u * WG;
      if (e < TS * VDIM_VECS) {
        let to = min(e, TS * VDIM_VECS - 1u) / VDIM_VECS * V_PITCH + e % VDIM_VECS * 4u;
        vs[to] = v${i}.x;
        vs[to + 1u] = v${i}.y;
        vs[to + 2u] = v${i}.z;
        vs[to + 3u] = v${i}.w;
      }
    }
#endfor
    if (workgroupUniformLoad(&needs_rescale[0]) != 0u) {
      if (t == 0u) {
        needs_rescale[0] = 0u;
      }
#for i in STRIP // SIDE
#for c in (VDIM + TS - 1) // TS
#for j in ${c} * TS // SIDE, (${c} + 1) * TS // SIDE if (${c} + 1) * TS <= VDIM else VDIM // SIDE
      subgroupMatrixStore(&scores, (r0 + ${i}u * SIDE) * S_PITCH + ${j}u % AT_ONCE * SIDE, sum${i}_${j}, false, S_PITCH);
#endfor
      workgroupBarrier();
      for (var e = lane; e < SIDE * TS; e += LANES) {
        let r = r0 + ${i}u * SIDE + e / TS;
        scores[r * S_PITCH + e % TS] *= row_factor[r];
      }
      workgroupBarrier();
#for j in ${c} * TS // SIDE, (${c} + 1) * TS // SIDE if (${c} + 1) * TS <= VDIM else VDIM // SIDE
      sum${i}_${j} = subgroupMatrixLoad<Result>(&scores, (r0 + ${i}u * SIDE) * S_PITCH + ${j}u % AT_ONCE * SIDE, false, S_PITCH);
#endfor
#endfor
#endfor
    }
#for k in TS // SIDE
    {
#for i in STRIP // SIDE
      let a${i} = subgroupMatrixLoad<Left>(&weights, (r0 + ${i}u * SIDE) * P_PITCH + ${k}u * SIDE, false, P_PITCH);
#endfor
#for j in VDIM // SIDE
      {
        let b = subgroupMatrixLoad<Right>(&vs, ${k}u * SIDE * V_PITCH + ${j}u * SIDE, false, V_PITCH);
#for i in STRIP // SIDE
        sum${i}_${j} = subgroupMatrixMultiplyAccumulate(a${i}, b, sum${i}_${j});
#endfor
      }
#endfor
    }
#endfor
  }
#for r in STRIP * 4 // LANES
  total${r} += subgroupShuffleXor(total${r}, 1u);
  total${r} += subgroupShuffleXor(total${r}, 2u);
#if SPLIT
  {
    let m = m0 + row${r} / G;
    if (quarter == 0u && row${r} < TQ * G && m < state.n) {
      let at = sums_at(wid.z, m, state.n, head * G + row${r} % G, p.n_head_kv * G) + VALUE_DIM;
      sums[at] = top${r};
      sums[at + 1u] = total${r};
    }
  }
#else
  row_factor[row${r}] = 1.0 / total${r};
#endif
#endfor
  workgroupBarrier();
#for i in STRIP // SIDE
#for j in VDIM // SIDE
  subgroupMatrixStore(&scores, (r0 + ${i}u * SIDE) * S_PITCH, sum${i}_${j}, false, S_PITCH);
  workgroupBarrier();
  for (var e = lane; e < SIDE * SIDE; e += LANES) {
    let r = r0 + ${i}u * SIDE + e / SIDE;
    let m = m0 + r / G;
    if (r < TQ * G && m < state.n && (VDIM == VALUE_DIM || ${j}u * SIDE + e % SIDE < VALUE_DIM)) {
#if SPLIT
      let at = sums_at(wid.z, m, state.n, head * G + r % G, p.n_head_kv * G) + ${j}u * SIDE + e % SIDE;
      sums[at] = scores[r * S_PITCH + e % SIDE];
#else
      let at = ((p.head0 + head) * G + r % G) * VALUE_DIM + ${j}u * SIDE + e % SIDE;
      y[m * p.y_stride + at] = Output(scores[r * S_PITCH + e % SIDE] * row_factor[r]);
#endif
    }
  }
  workgroupBarrier();
#endfor
#endfor
}
