// Reads of one layer's KV cache in two steps, so that a thread can have many loads in flight: *_fetch loads the stored
// bits (WIDE numbers of a key, four of a value) of vector `at`, which is in `page`; *_vec converts them to floats.
#include "lib/kv_rows.wgsl"
#if KV == "f16"
@bind var<storage, read> v_cache: array<vec2u>; // pairs of f16; unpack2x16float works without shader-f16
alias Value = vec2u;

fn halves(words: vec2u) -> vec4f {
  return vec4f(unpack2x16float(words.x), unpack2x16float(words.y));
}

fn value_fetch(at: u32, page: u32) -> Value {
  return v_cache[at];
}

fn value_vec(v: Value) -> vec4f {
  return halves(v);
}
#if HEAD_DIM % 8 == 0
@bind var<storage, read> k_cache: array<vec4u>;
const WIDE = 8u;
alias Key = vec4u;

fn key_vec(k: Key, i: u32) -> vec4f {
  return halves(select(k.xy, k.zw, i == 1u));
}
#else
@bind var<storage, read> k_cache: array<vec2u>;
const WIDE = 4u;
alias Key = vec2u;

fn key_vec(k: Key, i: u32) -> vec4f {
  return halves(k);
}
#endif

fn key_fetch(at: u32, page: u32) -> Key {
  return k_cache[at];
}
#endif
#if KV == "f32"
@bind var<storage, read> k_cache: array<vec4f>;
@bind var<storage, read> v_cache: array<vec4f>;
const WIDE = 4u;
alias Key = vec4f;
alias Value = vec4f;

fn key_fetch(at: u32, page: u32) -> Key {
  return k_cache[at];
}

fn key_vec(k: Key, i: u32) -> vec4f {
  return k;
}

fn value_fetch(at: u32, page: u32) -> Value {
  return v_cache[at];
}

fn value_vec(v: Value) -> vec4f {
  return v;
}
#endif
#if KV == "q8_0"
fn bytes_vec(word: u32) -> vec4f {
  return vec4f(unpack4xI8(word));
}

@bind var<storage, read> v_cache: array<u32>;
struct Value {
  word: u32,
  scale: f32,
}

fn value_fetch(at: u32, page: u32) -> Value {
  return Value(v_cache[word_at(at, page)], bitcast<f32>(v_cache[scale_at(at, page)]));
}

fn value_vec(v: Value) -> vec4f {
  return (v.scale / 127.0) * bytes_vec(v.word);
}
#if HEAD_DIM % 16 == 0
@bind var<storage, read> k_cache: array<vec4u>;
const WIDE = 16u;
struct Key {
  words: vec4u,
  scale: f32,
}

fn key_fetch(at: u32, page: u32) -> Key {
  let scale = scale_at(4u * at, page);
  return Key(k_cache[word_at(4u * at, page) / 4u], bitcast<f32>(k_cache[scale / 4u][scale % 4u]));
}

fn key_vec(k: Key, i: u32) -> vec4f {
  return (k.scale / 127.0) * bytes_vec(k.words[i]);
}
#else
@bind var<storage, read> k_cache: array<u32>;
const WIDE = 4u;
alias Key = Value;

fn key_fetch(at: u32, page: u32) -> Key {
  return Key(k_cache[word_at(at, page)], bitcast<f32>(k_cache[scale_at(at, page)]));
}

fn key_vec(k: Key, i: u32) -> vec4f {
  return value_vec(k);
}
#endif
#endif
