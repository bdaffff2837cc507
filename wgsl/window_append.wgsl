// For attention to compressed keys (DeepSeek V4): normalises each query head by its RMS, without weights, and rotates it, in
// place; normalises and rotates a token's key, and appends it to the cache of the window; appends to another cache what keys are
// compressed from. The last ROPE dimensions rotate, in neighbouring pairs. Grid (HEADS + KEYED + (INPUTS > 0), tokens): a
// workgroup per query head, then one for the key, then one for what keys are compressed from.
#param HEADS
#param SIZE // of a query head and of the key
#param ROPE // rotated dimensions
#param INPUTS // columns of x that keys are compressed from, after the key's; 0: none
#param KEYED // 1: there is a key; 0: there is none, and queries are not normalised (an index)
#param KV // element type of the cache of the window: "f16" or "f32"
#param WG // a power of two
#param SG

struct Params {
  x_stride: u32,
  x_first: u32, // column of a token's key
  y_stride: u32,
  rope_scale: f32, // factor on rotated queries and keys, else 1
  eps: f32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
#if KEYED
@bind var<storage, read> norm: array<f32>; // (SIZE): of the key
#endif
@bind var<storage, read> rope_freqs: array<u32>; // (ROPE / 2) turns in units of 2^-32 turns
@bind var<storage, read_write> y: array<f32>; // (n, y_stride): the queries
#if KEYED
@bind var<storage, read_write> k_cache: array<u32>; // (rows, SIZE): pairs of f16, or f32
#endif
#if INPUTS
@bind var<storage, read_write> inputs: array<f32>; // (rows, INPUTS)
#endif
#include "lib/pages.wgsl"
#include "lib/rotated.wgsl"
#include "lib/reduce.wgsl"
#if KEYED
#include "lib/store_pair.wgsl" with CACHE=k_cache
#endif

const PLAIN = SIZE - ROPE;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  if (m >= count()) { // uniform: state does not change within a dispatch
    return;
  }
  let row = row_in(page_of(pos_of(m), seq_of(m)), pos_of(m));
#if INPUTS
  if (wid.x >= HEADS + KEYED) {
    for (var i = t; i < INPUTS; i += WG) {
      inputs[row * INPUTS + i] = x[m * p.x_stride + p.x_first + KEYED * SIZE + i];
    }
    return;
  }
#endif
  if (wid.x < HEADS) {
    let first = m * p.y_stride + wid.x * SIZE;
#if KEYED
    var sum = 0.0;
    for (var i = t; i < SIZE; i += WG) {
      sum += y[first + i] * y[first + i];
    }
    let scale = inverseSqrt(workgroup_sum(sum, t) / f32(SIZE) + p.eps);
#else
    let scale = 1.0;
#endif
    for (var i = t; i < SIZE / 2u; i += WG) {
      let at = first + 2u * i;
      var v = scale * vec2f(y[at], y[at + 1u]);
      if (2u * i >= PLAIN) {
        v = rotated(v, i - PLAIN / 2u, m);
      }
      y[at] = v.x;
      y[at + 1u] = v.y;
    }
    return;
  }
#if KEYED
  let first = m * p.x_stride + p.x_first;
  var sum = 0.0;
  for (var i = t; i < SIZE; i += WG) {
    sum += x[first + i] * x[first + i];
  }
  let scale = inverseSqrt(workgroup_sum(sum, t) / f32(SIZE) + p.eps);
  for (var i = t; i < SIZE / 2u; i += WG) {
    let at = 2u * i;
    var v = scale * vec2f(x[first + at] * norm[at], x[first + at + 1u] * norm[at + 1u]);
    if (at >= PLAIN) {
      v = rotated(v, i - PLAIN / 2u, m);
    }
    store_pair(row * SIZE + at, v);
  }
#endif
}
