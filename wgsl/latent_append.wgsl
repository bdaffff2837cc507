// Latent attention (DeepSeek-AI 2024): rotates the last ROPE dimensions of each query head into the first ROPE columns of
// its row of y, and appends to the cache a token's rotated key, then the RMS norm of its latent. Rotated pairs become
// neighbours, in queries as in keys. WHOLE: a row of y is the whole query head, its rotated dimensions last.
// Grid (heads + 1, tokens): a workgroup per query head, the last one for the cache.
#param HEADS
#param NOPE // dimensions of a query head before the rotated ones
#param ROPE // rotated dimensions of a query head and of the key
#param RANK // of the latent
#param WHOLE
#param NEOX // 1: dimension i pairs with i + ROPE / 2; 0: with its neighbour
#param KV // element type of the cache: "f16" or "f32"
#param WG // a power of two
#param SG

struct Params {
  q_stride: u32,
  kv_stride: u32,
  kv_first: u32, // column of a token's latent
  y_stride: u32,
  rope_scale: f32, // factor on rotated queries and keys (YaRN), else 1
  eps: f32,
}
#include "lib/sequence.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> q: array<f32>; // (n, q_stride)
@bind var<storage, read> kv: array<f32>; // (n, kv_stride): from column kv_first on the latent, then the key
@bind var<storage, read> norm: array<f32>; // (RANK)
@bind var<storage, read> rope_freqs: array<u32>; // (ROPE / 2) turns in units of 2^-32 turns
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)
@bind var<storage, read_write> k_cache: array<u32>; // (rows, ROPE + RANK): pairs of f16, or f32
#include "lib/pages.wgsl"
#include "lib/rotated.wgsl"
#include "lib/reduce.wgsl"
#include "lib/store_pair.wgsl" with CACHE=k_cache

fn pair_at(i: u32) -> vec2u { // the dimensions of pair i
  return select(vec2u(2u * i, 2u * i + 1u), vec2u(i, i + ROPE / 2u), NEOX == 1u);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  if (m >= count()) { // uniform: state does not change within a dispatch
    return;
  }
  if (wid.x < HEADS) {
    let begin = m * p.q_stride + wid.x * (NOPE + ROPE) + NOPE;
#if WHOLE
    let to = m * p.y_stride + wid.x * (NOPE + ROPE) + NOPE;
    for (var i = t; i < NOPE; i += WG) {
      y[to - NOPE + i] = q[begin - NOPE + i];
    }
#else
    let to = m * p.y_stride + wid.x * (ROPE + RANK);
#endif
    for (var i = t; i < ROPE / 2u; i += WG) {
      let at = begin + pair_at(i);
      let v = rotated(vec2f(q[at.x], q[at.y]), i, m);
      y[to + 2u * i] = v.x;
      y[to + 2u * i + 1u] = v.y;
    }
    return;
  }
  let latent = m * p.kv_stride + p.kv_first;
  var sum = 0.0;
  for (var i = t; i < RANK; i += WG) {
    sum += kv[latent + i] * kv[latent + i];
  }
  let scale = inverseSqrt(workgroup_sum(sum, t) / f32(RANK) + p.eps);
  let to = row_in(page_of(pos_of(m), seq_of(m)), pos_of(m)) * (ROPE + RANK);
  for (var i = t; i < ROPE / 2u; i += WG) {
    let at = latent + RANK + pair_at(i);
    store_pair(to + 2u * i, rotated(vec2f(kv[at.x], kv[at.y]), i, m));
  }
  for (var i = t; i < RANK / 2u; i += WG) {
    let at = latent + 2u * i;
    store_pair(to + ROPE + 2u * i, vec2f(kv[at] * norm[2u * i], kv[at + 1u] * norm[2u * i + 1u]) * scale);
  }
}
