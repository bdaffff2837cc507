// y = softmax(q k^T * scale) v for a batch of tokens, as attention.wgsl, with subgroup matrices: f16 inputs, f32 sums.
//
// Grid (key/value heads, tiles of TQ tokens). A workgroup has ROWS rows, TQ tokens x G query heads, and TS positions at a
// time. The sums stay in registers, where a single row cannot be rescaled. So growth of a row's maximum by up to SLACK is
// ignored: weights then exceed 1, which f16 can hold. Larger growth rescales all sums, through workgroup memory.
#param HEAD_DIM
#param G // query heads per key/value head
#param TQ // tokens of a tile
#param ROWS // TQ * G, rounded up to whole matrices for every subgroup
#param TS // positions of a tile; a divisor of PAGE
#param WINDOW // positions that a token sees, itself included; 0: all
#param SOFT_CAP // cap of the scores; 0: none
#param SINKS // 1: each head has an attention sink, a logit without a value that joins the softmax
#param F16
#include "lib/subgroup_matrix.wgsl"
#include "lib/attention_inputs.wgsl"
@bind var<storage, read_write> y: array<f32>; // (n, n_head * HEAD_DIM padded to 32)

const WG = 4u * LANES; // 2 x 2 subgroups: two along the rows, two along the positions or dimensions
const PITCH = HEAD_DIM + 8u; // the pitches are padded against bank conflicts
const S_PITCH = TS + 4u;
const P_PITCH = TS + 8u;
const THREADS_PER_ROW = WG / ROWS; // of scores
const SLACK = 6.0; // a row's scores may exceed row_top by this much before the sums are rescaled

var<workgroup> qs: array<f16, ROWS * PITCH>;
var<workgroup> kv: array<f16, TS * PITCH>;
var<workgroup> scores: array<f32, max(ROWS * S_PITCH, 4 * SIDE * SIDE)>; // also a matrix of sums per subgroup
var<workgroup> weights: array<f16, ROWS * P_PITCH>;
var<workgroup> row_top: array<f32, ROWS>; // maximum that the weights are relative to
var<workgroup> row_sum: array<f32, ROWS>;
var<workgroup> row_next: array<f32, ROWS>;
var<workgroup> row_rescale: array<f32, ROWS>;
var<workgroup> part_top: array<f32, WG>;
// [0] is 1 if a row needs rescaling; 16 bytes, to keep the arrays aligned for matrices
var<workgroup> needs_rescale: array<u32, 4>;

fn load_tile(values: bool, s0: u32, end: u32, head: u32, t: u32) {
  let page = tile_page(s0);
  for (var i = t; i < TS * VECS; i += WG) {
    let v = cached_vector(values, page, s0 + i / VECS, end, head, i % VECS);
    let to = i / VECS * PITCH + i % VECS * 4u;
    kv[to] = f16(v.x);
    kv[to + 1u] = f16(v.y);
    kv[to + 2u] = f16(v.z);
    kv[to + 3u] = f16(v.w);
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let state = state.tokens[0];
  let head = wid.x;
  let m0 = wid.y * TQ;
  let end = state.pos + min(m0 + TQ, state.n);
  if (m0 >= state.n) { // uniform: state does not change within a dispatch
    return;
  }
  for (var i = t; i < ROWS * VECS; i += WG) {
    let row = min(i / VECS, TQ * G - 1u);
    let m = min(m0 + row / G, state.n - 1u);
    let v = q[m * (p.q_stride / 4u) + (head * G + row % G) * VECS + i % VECS] * p.scale;
    let to = i / VECS * PITCH + i % VECS * 4u;
    qs[to] = f16(v.x);
    qs[to + 1u] = f16(v.y);
    qs[to + 2u] = f16(v.z);
    qs[to + 3u] = f16(v.w);
  }
  if (t < ROWS) {
#if SINKS
    row_top[t] = sinks[head * G + t % G];
    row_sum[t] = 1.0;
#else
    row_top[t] = -1e30;
    row_sum[t] = 0.0;
#endif
  }
  let sub = t / LANES;
  let lane = t % LANES;
  let r0 = sub / 2u * (ROWS / 2u); // this subgroup's rows
  let c0 = sub % 2u * (TS / 2u); // its positions
  let d0 = sub % 2u * (HEAD_DIM / 2u); // its dimensions
  let row = t / THREADS_PER_ROW; // row of scores that this thread turns into weights
  let part = t % THREADS_PER_ROW;
#for i in ROWS // 2 // SIDE
#for j in HEAD_DIM // 2 // SIDE
  var sum${i}_${j} = Result();
#endfor
#endfor
  var begin = 0u;
#if WINDOW
  if (state.pos + m0 >= WINDOW) { // skip tiles that no row sees
    begin = (state.pos + m0 + 1u - WINDOW) / TS * TS;
  }
#endif
  for (var s0 = begin; s0 < end; s0 += TS) {
    load_tile(false, s0, end, head, t);
    if (t == 0u) {
      needs_rescale[0] = 0u;
    }
    workgroupBarrier();
    {
#for i in ROWS // 2 // SIDE
#for j in TS // 2 // SIDE
      var dots${i}_${j} = Result();
#endfor
#endfor
      for (var k = 0u; k < HEAD_DIM; k += SIDE) {
#for i in ROWS // 2 // SIDE
        let a${i} = subgroupMatrixLoad<Left>(&qs, (r0 + ${i}u * SIDE) * PITCH + k, false, PITCH);
#endfor
#for j in TS // 2 // SIDE
        {
          let b = subgroupMatrixLoad<Right>(&kv, (c0 + ${j}u * SIDE) * PITCH + k, true, PITCH);
#for i in ROWS // 2 // SIDE
          dots${i}_${j} = subgroupMatrixMultiplyAccumulate(a${i}, b, dots${i}_${j});
#endfor
        }
#endfor
      }
#for i in ROWS // 2 // SIDE
#for j in TS // 2 // SIDE
      subgroupMatrixStore(&scores, (r0 + ${i}u * SIDE) * S_PITCH + c0 + ${j}u * SIDE, dots${i}_${j}, false, S_PITCH);
#endfor
#endfor
    }
    workgroupBarrier();
    load_tile(true, s0, end, head, t);
    let own = state.pos + m0 + row / G;
    var top = -1e30;
    for (var i = part; i < TS; i += THREADS_PER_ROW) {
      var score = scores[row * S_PITCH + i];
      var visible = s0 + i < end && s0 + i <= own;
#if WINDOW
      visible = visible && s0 + i + WINDOW > own;
#endif
#if SOFT_CAP
      score = capped(score, SOFT_CAP);
#endif
      score = select(-1e30, score, visible);
      scores[row * S_PITCH + i] = score;
      top = max(top, score);
    }
    part_top[t] = top;
    workgroupBarrier();
    for (var i = 0u; i < THREADS_PER_ROW; i++) {
      top = max(top, part_top[row * THREADS_PER_ROW + i]);
    }
    let before = row_top[row];
    let grows = top > before + SLACK;
    let scale_to = select(before, top, grows);
    if (part == 0u) {
      row_next[row] = scale_to;
      row_rescale[row] = exp(before - scale_to);
      if (grows) {
        needs_rescale[0] = 1u;
      }
    }
    var sum = 0.0;
    for (var i = part; i < TS; i += THREADS_PER_ROW) {
      let score = scores[row * S_PITCH + i];
      let e = select(0.0, exp(score - scale_to), score > -1e29); // a row may see no position of this tile
      weights[row * P_PITCH + i] = f16(e);
      sum += e;
    }
    workgroupBarrier(); // all threads have read row_top and part_top
    part_top[t] = sum;
    if (workgroupUniformLoad(&needs_rescale[0]) != 0u) {
#for i in ROWS // 2 // SIDE
#for j in HEAD_DIM // 2 // SIDE
      subgroupMatrixStore(&scores, sub * SIDE * SIDE, sum${i}_${j}, false, SIDE);
      workgroupBarrier();
      for (var e = lane; e < SIDE * SIDE; e += LANES) {
        scores[sub * SIDE * SIDE + e] *= row_rescale[r0 + ${i}u * SIDE + e / SIDE];
      }
      workgroupBarrier();
      sum${i}_${j} = subgroupMatrixLoad<Result>(&scores, sub * SIDE * SIDE, false, SIDE);
#endfor
#endfor
    }
    workgroupBarrier();
    if (t < ROWS) {
      var total = row_sum[t] * row_rescale[t];
      for (var i = 0u; i < THREADS_PER_ROW; i++) {
        total += part_top[t * THREADS_PER_ROW + i];
      }
      row_sum[t] = total;
      row_top[t] = row_next[t];
    }
    for (var k = 0u; k < TS; k += SIDE) {
#for i in ROWS // 2 // SIDE
      let a${i} = subgroupMatrixLoad<Left>(&weights, (r0 + ${i}u * SIDE) * P_PITCH + k, false, P_PITCH);
#endfor
#for j in HEAD_DIM // 2 // SIDE
      {
        let b = subgroupMatrixLoad<Right>(&kv, k * PITCH + d0 + ${j}u * SIDE, false, PITCH);
#for i in ROWS // 2 // SIDE
        sum${i}_${j} = subgroupMatrixMultiplyAccumulate(a${i}, b, sum${i}_${j});
#endfor
      }
#endfor
    }
    workgroupBarrier();
  }
  let y_stride = (p.n_head_kv * G * HEAD_DIM + 31u) / 32u * 32u;
#for i in ROWS // 2 // SIDE
#for j in HEAD_DIM // 2 // SIDE
  subgroupMatrixStore(&scores, sub * SIDE * SIDE, sum${i}_${j}, false, SIDE);
  workgroupBarrier();
  for (var e = lane; e < SIDE * SIDE; e += LANES) {
    let r = r0 + ${i}u * SIDE + e / SIDE;
    let m = m0 + r / G;
    if (r < TQ * G && m < state.n) {
      let at = (head * G + r % G) * HEAD_DIM + d0 + ${j}u * SIDE + e % SIDE;
      y[m * y_stride + at] = scores[sub * SIDE * SIDE + e] / row_sum[r];
    }
  }
  workgroupBarrier();
#endfor
#endfor
}
