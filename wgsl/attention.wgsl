// y = softmax(q k^T * scale) v for a batch of tokens, in one pass with a running softmax (Dao et al. 2022).
//
// Grid (SHARE * key/value heads, tiles of TQ tokens). A workgroup has TQ x G rows, the query heads that share a key/value head,
// so keys and values are loaded once for all of them, TS positions at a time. attention_decode.wgsl serves small batches.
#param HEAD_DIM
#param G // query heads per key/value head
#param SHARE // workgroups that share a key/value head, each with G of its query heads
#param TQ // tokens of a tile
#param TS // positions of a tile; a divisor of PAGE
#param WG
#param SOFT_CAP // cap of the scores; 0: none
#param SINKS // 1: each head has an attention sink, a logit without a value that joins the softmax
#param ALIBI // 1: scores fall with the distance, by a slope per head (ALiBi, Press et al. 2022)
#param RELATIVE // not 0: scores get a bias (lib/relative_bias.wgsl)
#param Y16 // 1: y is f16
#param F16
#include "lib/attention_inputs.wgsl"
#include "lib/visible.wgsl"
#if ALIBI
@bind var<storage, read> slopes: array<f32>; // (n_head)
#endif
#if RELATIVE
#include "lib/relative_bias.wgsl"
#endif
#if Y16
alias Output = vec4<f16>;
#else
alias Output = vec4f;
#endif
@bind var<storage, read_write> y: array<Output>; // (n, y_stride)

#if F16
alias h4 = vec4<f16>;
#else
alias h4 = vec4f;
#endif

const PAD = VECS + 1u; // row pitch: one more than VECS, against bank conflicts
const ROWS = G * TQ;
const LANES = WG / VALUE_VECS; // rows that are summed in parallel
const ROWS_PER_LANE = (ROWS + LANES - 1u) / LANES;
const SCORE_LANES = WG / TS;
const SCORES_PER_LANE = (ROWS + SCORE_LANES - 1u) / SCORE_LANES;

var<workgroup> qs: array<h4, ROWS * PAD>;
var<workgroup> kv: array<h4, TS * PAD>;
var<workgroup> scores: array<f32, ROWS * TS>;
var<workgroup> row_max: array<f32, ROWS>;
var<workgroup> row_sum: array<f32, ROWS>;
var<workgroup> row_rescale: array<f32, ROWS>;

fn load_tile(values: bool, s0: u32, end: u32, head: u32, t: u32) {
  let page = tile_page(s0);
  let vecs = select(VECS, VALUE_VECS, values);
  for (var i = t; i < TS * vecs; i += WG) {
    kv[i / vecs * PAD + i % vecs] = h4(cached_vector(values, page, s0 + i / vecs, end, head / SHARE, i % vecs));
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let state = state.tokens[0];
  let head = wid.x;
  let m0 = wid.y * TQ;
  if (m0 >= state.n) { // uniform: state does not change within a dispatch
    return;
  }
  let end = visible(min(m0 + TQ, state.n) - 1u).y;
  for (var i = t; i < ROWS * VECS; i += WG) {
    let row = i / VECS;
    let m = min(m0 + row / G, state.n - 1u);
    qs[row * PAD + i % VECS] = h4(vec4f(q[m * (p.q_stride / 4u) + ((p.head0 + head) * G + row % G) * VECS + i % VECS]) * p.scale);
  }
  if (t < ROWS) {
#if SINKS
    row_max[t] = sinks[(p.head0 + head) * G + t % G];
    row_sum[t] = 1.0;
#else
    row_max[t] = -1e30;
    row_sum[t] = 0.0;
#endif
  }
  let lane = t / VALUE_VECS;
  let c = t % VALUE_VECS;
  let s = t % TS;
  var sums: array<vec4f, ROWS_PER_LANE>;
  let begin = visible(m0).x / TS * TS; // skips tiles that no row sees
  for (var s0 = begin; s0 < end; s0 += TS) {
    load_tile(false, s0, end, head, t);
    workgroupBarrier();
    if (t < SCORE_LANES * TS) {
      var dots = array<f32, SCORES_PER_LANE>(); // explicit zeros: SwiftShader keeps the last iteration's values otherwise
      for (var d = 0u; d < VECS; d++) {
        let k = kv[s * PAD + d];
        for (var r = 0u; r < SCORES_PER_LANE; r++) {
          dots[r] += f32(dot(k, qs[min(t / TS + r * SCORE_LANES, ROWS - 1u) * PAD + d]));
        }
      }
      for (var r = 0u; r < SCORES_PER_LANE; r++) {
        let row = t / TS + r * SCORE_LANES;
        if (row < ROWS) {
          let seen = visible(min(m0 + row / G, state.n - 1u));
#if SOFT_CAP
          dots[r] = capped(dots[r], SOFT_CAP);
#endif
#if ALIBI
          dots[r] -= slopes[head * G + row % G] * abs(f32(state.pos + m0 + row / G) - f32(s0 + s));
#endif
#if RELATIVE
          let distance = i32(s0 + s) - i32(state.pos + m0 + row / G);
          dots[r] += relative_bias(distance, head * G + row % G, p.n_head_kv * SHARE * G);
#endif
          scores[row * TS + s] = select(-1e30, dots[r], s0 + s >= seen.x && s0 + s < seen.y);
        }
      }
    }
    workgroupBarrier();
    load_tile(true, s0, end, head, t);
    if (t < ROWS) {
      var top = row_max[t];
      for (var i = 0u; i < TS; i++) {
        top = max(top, scores[t * TS + i]);
      }
      let rescale = exp(row_max[t] - top);
      var sum = row_sum[t] * rescale;
      for (var i = 0u; i < TS; i++) {
        let score = scores[t * TS + i];
        let e = select(0.0, exp(score - top), score > -1e29); // a row may see no position of this tile
        scores[t * TS + i] = e;
        sum += e;
      }
      row_max[t] = top;
      row_sum[t] = sum;
      row_rescale[t] = rescale;
    }
    workgroupBarrier();
    if (lane < LANES) {
      for (var r = 0u; r < ROWS_PER_LANE; r++) {
        sums[r] *= row_rescale[min(r * LANES + lane, ROWS - 1u)];
      }
      for (var i = 0u; i < TS; i++) {
        let v = vec4f(kv[i * PAD + c]);
        for (var r = 0u; r < ROWS_PER_LANE; r++) {
          sums[r] = fma(vec4f(scores[min(r * LANES + lane, ROWS - 1u) * TS + i]), v, sums[r]);
        }
      }
    }
    workgroupBarrier();
  }
  if (lane < LANES) {
    for (var r = 0u; r < ROWS_PER_LANE; r++) {
      let row = r * LANES + lane;
      let m = m0 + row / G;
      if (row < ROWS && m < state.n) {
        let q_head = (p.head0 + head) * G + row % G;
        y[m * (p.y_stride / 4u) + q_head * VALUE_VECS + c] = Output(sums[r] / row_sum[row]);
      }
    }
  }
}
