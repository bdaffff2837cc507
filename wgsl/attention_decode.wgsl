// Attention of one token over a share of the cache: grid (kv heads, SPLIT). The rows are the G query heads of a key/value
// head, so that keys and values are loaded once for all of them. A workgroup takes TS positions at a time: scores, their
// softmax with a running maximum, then the weighted sum of the values, which it leaves unnormalised with maximum and
// denominator for attention_combine.wgsl.
#param HEAD_DIM
#param G
#param TS // positions of a tile, a power of two
#param PARTS // threads that share a position's dot products, neighbours in a subgroup
#param SPLIT
#param KV_F16
#param WINDOW // positions that the token sees, itself included; 0: all
#param SOFT_CAP // 0: none
#param SG

struct Params {
  scale: f32,
  n_head_kv: u32,
}
#include "state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> q: array<vec4f>; // (n_head, HEAD_DIM)
#include "kv_cache.wgsl"
@bind var<storage, read_write> parts: array<vec4f>; // (n_head, SPLIT, VECS + 1): the sum, then (maximum, denominator)
#include "attention_share.wgsl"
#if SOFT_CAP
#include "capped.wgsl"
#endif

const VECS = HEAD_DIM / 4u;
const WG = TS * PARTS;
const LANES = max(1u, WG / VECS); // positions that are summed side by side
const COLS_EACH = (VECS + WG - 1u) / WG; // vectors of a thread where a head is wider than the workgroup

var<workgroup> qs: array<vec4f, G * VECS>;
var<workgroup> weights: array<f32, G * TS>;
var<workgroup> partial: array<vec4f, G * LANES * VECS>;
#include "reduce_rows.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let head = wid.x;
  let length = state.pos + 1u;
  let seen = attention_seen(length);
  let share = attention_share(seen);
  let first = length - seen + wid.y * share;
  let end = min(first + share, length);
  if (first >= end) { // uniform: state does not change within a dispatch
    return;
  }
  for (var i = t; i < G * VECS; i += WG) {
    qs[i] = q[head * G * VECS + i] * p.scale;
  }
  workgroupBarrier();
  let lane = t / VECS;
  var top: array<f32, G>;
  var total: array<f32, G>;
  var sums: array<array<vec4f, COLS_EACH>, G>;
  for (var g = 0u; g < G; g++) {
    top[g] = -1e30;
  }
  for (var s0 = first; s0 < end; s0 += TS) {
    var score = array<f32, G>(); // spelled out: SwiftShader keeps the last round's otherwise
    let s = s0 + t / PARTS;
    if (s < end) {
      let at = (s * p.n_head_kv + head) * VECS;
      for (var d = t % PARTS; d < VECS; d += PARTS) {
        let k = cached_key(at + d);
        for (var g = 0u; g < G; g++) {
          score[g] += dot(k, qs[g * VECS + d]);
        }
      }
    }
    for (var g = 0u; g < G; g++) {
#if PARTS > 1
      for (var width = 1u; width < PARTS; width *= 2u) {
        score[g] += subgroupShuffleXor(score[g], width);
      }
#endif
#if SOFT_CAP
      score[g] = capped(score[g], SOFT_CAP);
#endif
      score[g] = select(-1e30, score[g], s < end);
    }
    let now = rows_max(score, t);
    var e: array<f32, G>;
    for (var g = 0u; g < G; g++) {
      let new_top = max(top[g], now[g]);
      let shrink = exp(top[g] - new_top);
      top[g] = new_top;
      total[g] *= shrink;
      for (var c = 0u; c < COLS_EACH; c++) {
        sums[g][c] *= shrink;
      }
      e[g] = select(0.0, exp(score[g] - new_top), s < end);
      if (t % PARTS == 0u) {
        weights[g * TS + t / PARTS] = e[g];
        total[g] += e[g]; // of this thread's positions, summed over the threads at the end
      }
    }
    workgroupBarrier();
    let count = min(TS, end - s0);
    if (lane < LANES) {
      let at = (s0 * p.n_head_kv + head) * VECS;
      let step = p.n_head_kv * VECS;
      for (var i = lane; i < count; i += 4u * LANES) { // four loads on their way at a time
        for (var c = 0u; c < COLS_EACH; c++) {
          let column = at + min(t % VECS + c * WG, VECS - 1u);
          var v: array<vec4f, 4>;
          for (var j = 0u; j < 4u; j++) {
            v[j] = cached_value(column + min(i + j * LANES, count - 1u) * step);
          }
          for (var j = 0u; j < 4u; j++) {
            let here = i + j * LANES;
            for (var g = 0u; g < G; g++) {
              let weight = select(0.0, weights[g * TS + min(here, count - 1u)], here < count);
              sums[g][c] = fma(vec4f(weight), v[j], sums[g][c]);
            }
          }
        }
      }
    }
    workgroupBarrier();
  }
  for (var g = 0u; g < G; g++) {
    for (var c = 0u; c < COLS_EACH; c++) {
      let column = t % VECS + c * WG;
      if (lane < LANES && column < VECS) {
        partial[(g * LANES + lane) * VECS + column] = sums[g][c];
      }
    }
  }
  let totals = rows_sum(total, t); // its barriers serve the partial sums, too
  for (var i = t; i < G * VECS; i += WG) {
    let g = i / VECS;
    var sum = vec4f(0);
    for (var l = 0u; l < LANES; l++) {
      sum += partial[(g * LANES + l) * VECS + i % VECS];
    }
    parts[((head * G + g) * SPLIT + wid.y) * (VECS + 1u) + i % VECS] = sum;
  }
  if (t == 0u) {
    for (var g = 0u; g < G; g++) {
      parts[((head * G + g) * SPLIT + wid.y) * (VECS + 1u) + VECS] = vec4f(top[g], totals[g], 0.0, 0.0);
    }
  }
}
