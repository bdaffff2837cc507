// Attention of few tokens over a share of the cache each: grid (kv heads, SPLIT, tokens). The rows are the G query heads of a key/value
// head, so that keys and values are loaded once for all of them. A workgroup takes TS positions at a time: scores, their
// softmax with a running maximum, then the weighted sum of the values, which it leaves unnormalised with maximum and
// denominator for attention_combine.wgsl.
#param HEAD_DIM
#param G
#param TS // positions of a tile, a power of two
#param PARTS // threads that share a position's dot products, neighbours in a subgroup
#param SPLIT
#param WINDOW // positions that the token sees, itself included; 0: all
#param SOFT_CAP // 0: none
#param SG

struct Params {
  scale: f32,
  n_head_kv: u32,
  q_stride: u32, // floats between tokens of q
}
#include "sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> q: array<vec4f>; // (n, q_stride)
#include "kv_cache.wgsl"
@bind var<storage, read_write> parts: array<vec4f>; // (n, n_head, SPLIT, VECS + 1): the sum, then (maximum, denominator)
#include "attention_share.wgsl"
#if SOFT_CAP
#include "capped.wgsl"
#endif

const VECS = HEAD_DIM / 4u;
const WG = TS * PARTS;
const LANES = max(1u, WG / VECS); // positions that are summed side by side

var<workgroup> qs: array<vec4f, G * VECS>;
var<workgroup> weights: array<f32, G * TS>;
#if TS * PARTS >= HEAD_DIM // 2
var<workgroup> partial: array<vec4f, G * LANES * VECS>;
#endif
#include "reduce_rows.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let head = wid.x;
  let m = wid.z;
#if EACH
  if (m >= count()) {
    return;
  }
#endif
  let seq = seq_of(m);
  let length = pos_of(m) + 1u;
  let seen = attention_seen(length);
  let share = attention_share(seen);
  let first = length - seen + wid.y * share;
  let end = min(first + share, length);
  if (first >= end) { // uniform: state does not change within a dispatch
    return;
  }
  for (var i = t; i < G * VECS; i += WG) {
    qs[i] = q[m * (p.q_stride / 4u) + head * G * VECS + i] * p.scale;
  }
  workgroupBarrier();
  let lane = t / VECS;
  let to = (m * p.n_head_kv + head) * G; // row of parts
  // One variable for each of the G rows: an array would be left in slow memory where a compiler does not unroll.
#for g in G
  var top${g} = -1e30;
  var total${g} = 0.0; // of this thread's positions
#for c in (HEAD_DIM // 4 + TS * PARTS - 1) // (TS * PARTS)
  var sum${g}_${c} = vec4f(0);
#endfor
#endfor
  for (var s0 = first; s0 < end; s0 += TS) {
    let s = s0 + t / PARTS;
#for g in G
    var score${g} = 0.0;
#endfor
    if (s < end) {
      let at = (cached_row(s, seq) * p.n_head_kv + head) * VECS;
      for (var d = t % PARTS; d < VECS; d += PARTS) {
        let k = cached_key(at + d, seq);
#for g in G
        score${g} += dot(k, qs[${g}u * VECS + d]);
#endfor
      }
    }
#for g in G
#if PARTS > 1
    for (var width = 1u; width < PARTS; width *= 2u) {
      score${g} += subgroupShuffleXor(score${g}, width);
    }
#endif
#if SOFT_CAP
    score${g} = capped(score${g}, SOFT_CAP);
#endif
    score${g} = select(-1e30, score${g}, s < end);
    rows_put_max(${g}u, score${g}, t);
#endfor
    workgroupBarrier();
#for g in G
    {
      let new_top = max(top${g}, rows_get_max(${g}u));
      let shrink = exp(top${g} - new_top);
      top${g} = new_top;
      total${g} *= shrink;
#for c in (HEAD_DIM // 4 + TS * PARTS - 1) // (TS * PARTS)
      sum${g}_${c} *= shrink;
#endfor
      if (t % PARTS == 0u) {
        let e = select(0.0, exp(score${g} - new_top), s < end);
        weights[${g}u * TS + t / PARTS] = e;
        total${g} += e;
      }
    }
#endfor
    workgroupBarrier();
    let count = min(TS, end - s0);
    if (lane < LANES) {
      for (var i = lane; i < count; i += 4u * LANES) { // four loads on their way at a time
#for j in 4
        let here${j} = min(i + ${j}u * LANES, count - 1u);
        let there${j} = i + ${j}u * LANES < count;
#endfor
#for c in (HEAD_DIM // 4 + TS * PARTS - 1) // (TS * PARTS)
        {
          let column = min(t % VECS + ${c}u * WG, VECS - 1u);
#for j in 4
          let v${j} = cached_value((cached_row(s0 + here${j}, seq) * p.n_head_kv + head) * VECS + column, seq);
#endfor
#for g in G
#for j in 4
          sum${g}_${c} = fma(vec4f(select(0.0, weights[${g}u * TS + here${j}], there${j})), v${j}, sum${g}_${c});
#endfor
#endfor
        }
#endfor
      }
    }
    workgroupBarrier();
  }
#for g in G
#for c in (HEAD_DIM // 4 + TS * PARTS - 1) // (TS * PARTS)
  if (lane < LANES && t % VECS + ${c}u * WG < VECS) {
#if TS * PARTS >= HEAD_DIM // 2
    partial[(${g}u * LANES + lane) * VECS + t % VECS + ${c}u * WG] = sum${g}_${c};
#else
    parts[((to + ${g}u) * SPLIT + wid.y) * (VECS + 1u) + t % VECS + ${c}u * WG] = sum${g}_${c}; // of the one lane
#endif
  }
#endfor
  rows_put_sum(${g}u, total${g}, t);
#endfor
  workgroupBarrier();
#if TS * PARTS >= HEAD_DIM // 2
  for (var i = t; i < G * VECS; i += WG) {
    let g = i / VECS;
    var sum = vec4f(0);
    for (var l = 0u; l < LANES; l++) {
      sum += partial[(g * LANES + l) * VECS + i % VECS];
    }
    parts[((to + g) * SPLIT + wid.y) * (VECS + 1u) + i % VECS] = sum;
  }
#endif
  if (t == 0u) {
#for g in G
    parts[((to + ${g}u) * SPLIT + wid.y) * (VECS + 1u) + VECS] = vec4f(top${g}, rows_get_sum(${g}u), 0.0, 0.0);
#endfor
  }
}
