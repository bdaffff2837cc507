// Attention to the keys of a window and to compressed keys. Keys are also the values: so the last ROPE dimensions of their
// weighted sum are rotated back by the token's position. Grid (heads, tokens): a workgroup per query head. It takes WG keys at a
// time: a thread computes the score of one, then columns of the weighted sum.
#param SIZE // of a query head and of a key
#param ROPE // rotated dimensions, in neighbouring pairs
#param WINDOW // a token attends to itself and the WINDOW - 1 tokens before it
#param RATIO // positions that a key compresses; 0: there are no such keys
#param INDEXED // words of a token's mask: a compressed key counts if the bit of its last position is set; 0: all count
#param KV // element type of the caches: "f16" or "f32"
#param WG

struct Params {
  q_stride: u32,
  y_stride: u32,
  scale: f32, // factor on the products of queries and keys
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> q: array<vec4f>; // (n, q_stride)
@bind var<storage, read> sinks: array<f32>; // (heads): a score more, which has no value
@bind var<storage, read> rope_freqs: array<u32>; // (ROPE / 2) turns in units of 2^-32 turns
#if KV == "f16"
alias Four = vec2u;

fn four(v: vec2u) -> vec4f {
  return vec4f(unpack2x16float(v.x), unpack2x16float(v.y));
}
#else
alias Four = vec4f;

fn four(v: vec4f) -> vec4f {
  return v;
}
#endif
@bind var<storage, read> k_cache: array<Four>; // (rows, SIZE)
#if RATIO
@bind var<storage, read> c_cache: array<Four>; // compressed keys
#include "lib/compressed_keys.wgsl"
#endif
#if INDEXED
@bind var<storage, read> index_mask: array<u32>; // (n, INDEXED)
#endif
@bind var<storage, read_write> y: array<vec4f>; // (n, y_stride)
#include "lib/pages.wgsl"
#include "lib/rotation.wgsl"

const VECS = SIZE / 4u;
const EACH = (VECS + WG - 1u) / WG; // vectors of the sum that a thread has
const PLAIN = SIZE - ROPE;
var<workgroup> query: array<vec4f, VECS>;
var<workgroup> scores: array<f32, WG>;
var<workgroup> places: array<u32, WG>; // first vector of each key in its cache

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  if (m >= count()) { // uniform: state does not change within a dispatch
    return;
  }
  let seq = seq_of(m);
  let begin = segment_begin(m);
  let end = pos_of(m) + 1u;
  let near = min(WINDOW, end - begin); // keys of the window
#if RATIO
  let keys = near + (end - begin) / RATIO;
#else
  let keys = near;
#endif
  for (var i = t; i < VECS; i += WG) {
    query[i] = p.scale * q[m * (p.q_stride / 4u) + wid.x * VECS + i];
  }
  var top = sinks[wid.x];
  var total = 1.0;
  var sum: array<vec4f, EACH>;
  for (var first = 0u; first < keys; first += WG) {
    workgroupBarrier(); // the query is there; the keys before are done with
    let k = first + t;
    var score = -3e38;
    if (k < keys) {
      var dot4 = vec4f();
      if (k < near) {
        let s = end - near + k;
        places[t] = row_in(page_of(s, seq), s) * VECS;
        for (var i = 0u; i < VECS; i++) {
          dot4 += query[i] * four(k_cache[places[t] + i]);
        }
      }
#if RATIO
      else {
        let last = begin + (k - near + 1u) * RATIO - 1u;
        places[t] = key_at(last, seq) / 4u;
        for (var i = 0u; i < VECS; i++) {
          dot4 += query[i] * four(c_cache[places[t] + i]);
        }
      }
#endif
      score = dot4.x + dot4.y + dot4.z + dot4.w;
#if INDEXED
      if (k >= near) {
        let last = begin + (k - near + 1u) * RATIO - 1u;
        score = select(-3e38, score, ((index_mask[m * INDEXED + last / 32u] >> (last % 32u)) & 1u) == 1u);
      }
#endif
    }
    scores[t] = score;
    workgroupBarrier();
    let there = min(WG, keys - first);
    var new_top = top;
    for (var j = 0u; j < there; j++) {
      new_top = max(new_top, scores[j]);
    }
    let rescale = exp(top - new_top);
    top = new_top;
    total *= rescale;
    for (var c = 0u; c < EACH; c++) {
      sum[c] *= rescale;
    }
    for (var j = 0u; j < there; j++) {
      let weight = exp(scores[j] - top);
      total += weight;
      for (var c = 0u; c < EACH; c++) {
        let i = t + c * WG;
        if (i >= VECS) {
          break;
        }
#if RATIO
        if (first + j >= near) {
          sum[c] += weight * four(c_cache[places[j] + i]);
          continue;
        }
#endif
        sum[c] += weight * four(k_cache[places[j] + i]);
      }
    }
  }
  for (var c = 0u; c < EACH; c++) {
    let i = t + c * WG;
    if (i >= VECS) {
      break;
    }
    var v = sum[c] / total;
    if (4u * i >= PLAIN) {
      let pair = (4u * i - PLAIN) / 2u;
      let back = vec2f(1.0, -1.0);
      let one = rotate(v.xy, back * cos_sin(offset_of(m) * rope_freqs[pair]));
      v = vec4f(one, rotate(v.zw, back * cos_sin(offset_of(m) * rope_freqs[pair + 1u])));
    }
    y[m * (p.y_stride / 4u) + wid.x * VECS + i] = v;
  }
}
