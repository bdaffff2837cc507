// The index of sparse attention: rotates ROPE dimensions of each of its query heads in place, and appends a token's key to
// the cache, after a layer norm and the same rotation. Grid (heads + 1, tokens): a workgroup per query head, the last one
// for the key. If keys are joined, the key's gates follow it in the cache. RAW: query heads have an RMS norm before their
// rotation, and the key is stored as it is.
#param HEADS
#param SIZE // of a query head and of the key
#param ROPE // rotated dimensions
#param FIRST // the first of them
#param NEOX // 1: dimension i pairs with i + ROPE / 2; 0: with its neighbour
#param ROW // columns of a row of the cache; more than SIZE if keys are joined
#param RAW
#param WG // a power of two
#param SG

struct Params {
  x_stride: u32,
  y_stride: u32,
  rope_scale: f32, // factor on rotated queries and keys (YaRN), else 1
  eps: f32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride): the key, then its gates
@bind var<storage, read> norm: array<f32>; // (2 SIZE): factors of the key, then biases; RAW: factors of a query head first
@bind var<storage, read> rope_freqs: array<u32>; // (ROPE / 2) turns in units of 2^-32 turns
@bind var<storage, read_write> y: array<f32>; // (n, y_stride): the queries
@bind var<storage, read_write> k_cache: array<f32>; // (rows, ROW)
#include "lib/pages.wgsl"
#include "lib/rotated.wgsl"
#include "lib/reduce.wgsl"

var<workgroup> key: array<f32, SIZE>;

fn pair_at(i: u32) -> vec2u { // the dimensions of pair i
  return FIRST + select(vec2u(2u * i, 2u * i + 1u), vec2u(i, i + ROPE / 2u), NEOX == 1u);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  if (m >= count()) { // uniform: state does not change within a dispatch
    return;
  }
  if (wid.x < HEADS) {
    let first = m * p.y_stride + wid.x * SIZE;
#if RAW
    var sum = 0.0;
    for (var i = t; i < SIZE; i += WG) {
      sum += y[first + i] * y[first + i];
    }
    let scale = inverseSqrt(workgroup_sum(sum, t) / f32(SIZE) + p.eps);
    for (var i = t; i < SIZE; i += WG) {
      y[first + i] *= scale * norm[i];
    }
    storageBarrier();
#endif
    for (var i = t; i < ROPE / 2u; i += WG) {
      let at = first + pair_at(i);
      let v = rotated(vec2f(y[at.x], y[at.y]), i, m);
      y[at.x] = v.x;
      y[at.y] = v.y;
    }
    return;
  }
  let first = m * p.x_stride;
  let to = row_in(page_of(pos_of(m), seq_of(m)), pos_of(m)) * ROW;
#if RAW
  for (var i = t; i < SIZE; i += WG) {
    k_cache[to + i] = x[first + i];
  }
#else
  var sum = 0.0;
  for (var i = t; i < SIZE; i += WG) {
    sum += x[first + i];
  }
  let mean = workgroup_sum(sum, t) / f32(SIZE);
  var squares = 0.0;
  for (var i = t; i < SIZE; i += WG) {
    squares += (x[first + i] - mean) * (x[first + i] - mean);
  }
  let scale = inverseSqrt(workgroup_sum(squares, t) / f32(SIZE) + p.eps);
  for (var i = t; i < SIZE; i += WG) {
    key[i] = (x[first + i] - mean) * scale * norm[i] + norm[SIZE + i];
  }
  workgroupBarrier();
  for (var i = t; i < ROPE / 2u; i += WG) {
    let at = pair_at(i);
    let v = rotated(vec2f(key[at.x], key[at.y]), i, m);
    k_cache[to + at.x] = v.x;
    k_cache[to + at.y] = v.y;
  }
  for (var i = t; i < SIZE - ROPE; i += WG) {
    let at = select(i + ROPE, i, i < FIRST);
    k_cache[to + at] = key[at];
  }
#if ROW > SIZE
  for (var i = t; i < SIZE; i += WG) {
    k_cache[to + SIZE + i] = x[first + SIZE + i];
  }
#endif
#endif
}
