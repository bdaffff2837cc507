// The index of sparse attention: scores[m][s] = the sum over heads of weight * max(0, query . key of position s), for the
// positions that token m sees. Where keys are joined, s counts the joined ones of the sequence.
// Grid (tiles of TM tokens, tiles of TS positions). A workgroup loads a tile's keys once for its tokens; the threads of a
// position share the heads.
#param HEADS
#param SIZE // of a query head and of a key, a multiple of 4
#param TS // positions of a tile
#param TM // tokens of a tile; 1 where each may be of another sequence
#param POOL // positions whose keys are joined; 1: none are
#param ROW // columns of a row of the cache
#param WIDTH // floats of a row of scores
#param WEIGHTED // 0: heads have no weights
#param COMPRESSED // 1: keys are compressed ones, at the places of lib/compressed_keys.wgsl
#param WG

struct Params {
  first: u32, // token of the batch that the scores begin with
  tokens: u32, // rows of the scores
  q_stride: u32,
  x_stride: u32,
  x_first: u32, // column of a token's weights
  scale: f32, // factor of the weights
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> q: array<vec4f>; // (n, q_stride)
#if WEIGHTED
@bind var<storage, read> x: array<f32>; // (n, x_stride)
#endif
@bind var<storage, read> k_cache: array<vec4f>; // (rows, ROW): a key; of joined ones, the last SIZE columns
@bind var<storage, read_write> scores: array<f32>; // (tokens, WIDTH)
#include "lib/pages.wgsl"
#if COMPRESSED
#include "lib/compressed_keys.wgsl"
#endif

const VECS = SIZE / 4u;
const LANES = WG / TS; // threads of a position

var<workgroup> keys: array<array<vec4f, VECS + 1u>, TS>; // the last vector is not used: rows begin in different banks
var<workgroup> partial: array<f32, WG>;

// The keys that token m sees: the first, and the one after the last.
fn keys_of(m: u32) -> vec2u {
#if POOL > 1
  return vec2u(0u, (offset_of(m) + 1u) / POOL);
#else
  return vec2u(segment_begin(m), pos_of(m) + 1u);
#endif
}

// Position that has a key, of those that token m sees.
fn place_of(key: u32, m: u32) -> u32 {
#if POOL > 1
  return segment_begin(m) + (key + 1u) * POOL - 1u;
#else
  return key;
#endif
}

// First vector of the key at a position.
fn first_vector(s: u32, seq: u32) -> u32 {
#if COMPRESSED
  return key_at(s, seq) / 4u;
#else
  return (row_in(page_of(s, seq), s) * ROW + ROW - SIZE) / 4u;
#endif
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m0 = p.first + wid.x * TM;
  let last = min(min(m0 + TM, p.first + p.tokens), count());
  let s0 = wid.y * TS;
  if (m0 >= last) { // uniform: state does not change within a dispatch
    return;
  }
  let end = keys_of(last - 1u).y;
  if (s0 >= end) { // uniform, too
    return;
  }
  let seq = seq_of(m0);
  for (var e = t; e < TS * VECS; e += WG) {
    let s = place_of(min(s0 + e / VECS, end - 1u), m0);
    keys[e / VECS][e % VECS] = k_cache[first_vector(s, seq) + e % VECS];
  }
  workgroupBarrier();
  let j = t / LANES;
  for (var m = m0; m < last; m++) {
    var sum = 0.0;
    for (var h = t % LANES; h < HEADS; h += LANES) {
      var products = 0.0;
      for (var c = 0u; c < VECS; c++) {
        products += dot(q[m * (p.q_stride / 4u) + h * VECS + c], keys[j][c]);
      }
#if WEIGHTED
      sum += x[m * p.x_stride + p.x_first + h] * p.scale * max(products, 0.0);
#else
      sum += p.scale * max(products, 0.0);
#endif
    }
    partial[t] = sum;
    workgroupBarrier();
    let seen = keys_of(m);
    if (t % LANES == 0u && s0 + j >= seen.x && s0 + j < seen.y) {
      for (var i = 1u; i < LANES; i++) {
        sum += partial[t + i];
      }
      scores[(m - p.first) * WIDTH + s0 + j] = sum;
    }
    workgroupBarrier();
  }
}
