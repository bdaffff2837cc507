// One token's heads for attention, from its stacked q, k and v rows: a workgroup's query heads, normalised and rotated, and
// in the workgroup that reads the newest position also the key and the value, which it stores in the cache. All of it rounds
// as norm_rope_append.wgsl does, which small batches run.
#param ROPE_DIM // leading dimensions of a head that are rotated
#param NEOX // see rope_row() of lib/rope.wgsl
#param SLICE // threads that normalise a head: the workgroup of norm_rope_append.wgsl, whose sums have the same order
@bind var<storage, read> x: array<f32>; // (1, x_stride)
#include "lib/head_norm.wgsl"
#include "lib/rope_turns.wgsl"
#if KV == "q8_0"
#include "lib/kv_group.wgsl"
#endif
const SLICES = WG / SLICE; // heads that are normalised at once

// The newest position's key, then its value, as the cache holds them. Only memory makes sure that they are rounded: some
// compilers drop unpack2x16float(pack2x16float(v)).
var<workgroup> newest: array<Value, 2u * VECS>;

fn newest_key(i: u32) -> vec4f {
  return value_vec(newest[i]);
}

fn newest_value(i: u32) -> vec4f {
  return value_vec(newest[VECS + i]);
}

// A row of a head, the row that it is rotated with, and the rotation.
struct Pair {
  first: HeadRow,
  second: HeadRow,
  rotation: vec2f, // (cos, sin)
  place: u32, // of the row: 0 first, 1 second, 2 first, and not rotated
}

fn pair_load(row: u32, head: u32) -> Pair {
  let r = row - head;
  if (r >= ROPE_DIM || head >= p.q_rows + p.kv_rows) {
    let alone = head_row(row, head, 0u);
    return Pair(alone, alone, vec2f(1.0, 0.0), 2u);
  }
  const HALF = max(ROPE_DIM / (2u * max(NEOX, 1u)), 1u); // distance of a pair's rows, if they are not neighbours
  var place = r / HALF % 2u;
  var first = row - place * HALF;
  var pair = r / (2u * HALF) * HALF + r % HALF;
  var second = first + HALF;
  if (NEOX == 0u) {
    place = r % 2u;
    first = row - place;
    second = first + 1u;
    pair = r / 2u;
  }
  return Pair(head_row(first, head, 0u), head_row(second, head, 0u), pair_rotation(pair, 0u), place);
}

// The row of a pair that was asked for, normalised, and rotated if it is a query's or a key's.
fn pair_value(pair: Pair, head: u32, moments: Moments) -> f32 {
  let first = normed(pair.first, head, moments);
  let rotated = rotate(vec2f(first, normed(pair.second, head, moments)), pair.rotation);
  var out = select(select(rotated.x, rotated.y, pair.place == 1u), first, pair.place == 2u);
#if AFTER
  out *= select(pair.first.weight, pair.second.weight, pair.place == 1u);
#endif
  return out;
}

// Loads the G query heads of workgroup `wg` of the grid into qs. `last`: also the key and the value into newest.
fn heads_load(wg: u32, last: bool, t: u32) {
  let kv = wg / SHARE * HEAD_DIM;
  let count = select(G, G + 2u, last);
  for (var h0 = 0u; h0 < count; h0 += SLICES) {
    let h = min(h0 + t / SLICE, count - 1u); // query heads, then the key and the value
    let key_or_value = p.q_rows + select(0u, p.kv_rows, h > G) + kv;
    let head = select((wg * G + h) * HEAD_DIM, key_or_value, h >= G);
    let i = min(t % SLICE, VECS - 1u);
#for j in 4
    let pair${j} = pair_load(head + 4u * i + ${j}u, head);
#endfor
    let moments = head_moments(head, 0u, t);
    if (t % SLICE < VECS && h0 + t / SLICE < count) {
      let a = vec2f(pair_value(pair0, head, moments), pair_value(pair1, head, moments));
      let b = vec2f(pair_value(pair2, head, moments), pair_value(pair3, head, moments));
      if (h < G) {
        qs[h * VECS + i] = vec4f(a, b) * p.scale;
      } else {
#if KV == "q8_0"
        partial[(h - G) * VECS + i] = vec4f(a, b);
#else
        newest[(h - G) * VECS + i] = stored(vec4f(a, b));
#endif
      }
    }
  }
#if KV == "q8_0"
  if (last) {
    workgroupBarrier();
    for (var i = t; i < 2u * VECS; i += WG) {
      var max_abs4 = vec4f(0);
      for (var j = 0u; j < 8u; j++) {
        max_abs4 = max(max_abs4, abs(partial[i / 8u * 8u + j]));
      }
      let scale = scale_of(max_abs4);
      newest[i] = Value(bytes_of(partial[i], scale), scale);
    }
  }
#endif
}

// Stores newest in a row of the cache. Only the workgroup that reads the newest position does.
fn heads_store(page: u32, row: u32, wg: u32, t: u32) {
  let at = row * p.n_head_kv + wg / SHARE;
#if KV == "q8_0"
  for (var i = t; i < VECS; i += WG) {
    v_cache[word_at(at * VECS + i, page)] = newest[VECS + i].word;
    if (i % 8u == 0u) {
      v_cache[scale_at(at * VECS + i, page)] = bitcast<u32>(newest[VECS + i].scale);
    }
  }
  for (var i = 4u * t; i < VECS; i += 4u * WG) {
    let words = vec4u(newest[i].word, newest[i + 1u].word, newest[i + 2u].word, newest[i + 3u].word);
    k_cache[word_at(at * VECS + i, page) / 4u] = words;
  }
  for (var i = 32u * t; i < VECS; i += 32u * WG) { // whole vectors, because a part of one would be another workgroup's
    let scales = vec4f(newest[i].scale, newest[i + 8u].scale, newest[i + 16u].scale, newest[i + 24u].scale);
    k_cache[scale_at(at * VECS + i, page) / 4u] = bitcast<vec4u>(scales);
  }
#else
  for (var i = t; i < VECS; i += WG) {
    v_cache[at * VECS + i] = newest[VECS + i];
  }
  for (var i = t; i < CHUNKS; i += WG) {
#if KV == "f16" and HEAD_DIM % 8 == 0
    k_cache[at * CHUNKS + i] = vec4u(newest[2u * i], newest[2u * i + 1u]);
#else
    k_cache[at * CHUNKS + i] = newest[i];
#endif
  }
#endif
}
#if KV == "f16"

fn stored(v: vec4f) -> Value {
  return vec2u(pack2x16float(v.xy), pack2x16float(v.zw));
}
#endif
#if KV == "f32"

fn stored(v: vec4f) -> Value {
  return v;
}
#endif
