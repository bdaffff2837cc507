// Compresses RATIO positions to a key where the last of them is the batch's: the mean of their values, weighted by a softmax
// over scores, column by column; then an RMS norm and a rotation to the first one's position. OVERLAPS: also of the RATIO
// positions before; each position has values for the next key, then values for its own. Grid (tokens).
#param QUANT // fragment of wgsl/quants that reads the terms: llama-quantize quantizes them like other matrices
#param SIZE // of a key
#param ROPE // its last dimensions, which rotate in neighbouring pairs
#param RATIO
#param OVERLAPS
#param KV // element type of the cache of compressed keys: "f16" or "f32"
#param WG // a power of two
#param SG

struct Params {
  rope_scale: f32, // factor on rotated keys, else 1
  eps: f32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> norm: array<f32>; // (SIZE)
@bind var<storage, read> rope_freqs: array<u32>; // (ROPE / 2) turns in units of 2^-32 turns
@bind var<storage, read> inputs: array<f32>; // (rows, 2 * COLS): values, then scores
@bind var<storage, read_write> c_cache: array<u32>; // compressed keys: pairs of f16, or f32
#include "lib/pages.wgsl"
#include "lib/compressed_keys.wgsl"
#include "lib/rotation.wgsl"
#include "lib/reduce.wgsl"
#include "lib/store_pair.wgsl" with CACHE=c_cache

const COLS = SIZE * (1u + OVERLAPS);
const W_GROUPS = (COLS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
const PLAIN = SIZE - ROPE;
var<workgroup> key: array<f32, SIZE>;

// What is added to a score of a key's position `row`, from 0 to RATIO - 1.
fn term(row: u32, column: u32) -> f32 {
  let w = w_group(row, column / 32u);
  return w[column % 32u / 4u][column % 4u];
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.x;
  if (m >= count() || (offset_of(m) + 1u) % RATIO != 0u) { // uniform: state does not change within a dispatch
    return;
  }
  let seq = seq_of(m);
  let last = pos_of(m);
  let reach = select(RATIO, min(2u * RATIO, offset_of(m) + 1u), OVERLAPS == 1u); // positions that count
  var squares = 0.0;
  for (var i = t; i < SIZE; i += WG) {
    var top = -1e30;
    var total = 0.0;
    var sum = 0.0;
    for (var back = reach; back > 0u; back--) {
      let s = last + 1u - back;
      let column = i + select(0u, SIZE, OVERLAPS == 1u && back <= RATIO);
      let at = row_in(page_of(s, seq), s) * (2u * COLS) + column;
      let score = inputs[at + COLS] + term((2u * RATIO - back) % RATIO, column);
      let new_top = max(top, score);
      let e = exp(score - new_top);
      let rescale = exp(top - new_top);
      total = total * rescale + e;
      sum = sum * rescale + e * inputs[at];
      top = new_top;
    }
    key[i] = sum / total;
    squares += key[i] * key[i];
  }
  let scale = inverseSqrt(workgroup_sum(squares, t) / f32(SIZE) + p.eps);
  workgroupBarrier();
  let to = key_at(last, seq);
  for (var i = t; i < SIZE / 2u; i += WG) {
    let at = 2u * i;
    var v = scale * vec2f(key[at] * norm[at], key[at + 1u] * norm[at + 1u]);
    if (at >= PLAIN) {
      v = rotate(v, p.rope_scale * cos_sin((offset_of(m) + 1u - RATIO) * rope_freqs[i - PLAIN / 2u]));
    }
    store_pair(to + at, v);
  }
}
