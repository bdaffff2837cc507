// Reads of one layer's KV cache, four values at a time, for attention kernels that load tiles.
// `at`: index of the vector in the cache, scales not counted. `page`: the page that it is in.
#include "lib/kv_rows.wgsl"
#if KV == "f16"
@bind var<storage, read> k_cache: array<vec2u>; // pairs of f16; unpack2x16float works without shader-f16
#if not NOPE
@bind var<storage, read> v_cache: array<vec2u>;
#endif

fn cached_key(at: u32, page: u32) -> vec4f {
  let words = k_cache[at];
  return vec4f(unpack2x16float(words.x), unpack2x16float(words.y));
}
#if not NOPE

fn cached_value(at: u32, page: u32) -> vec4f {
  let words = v_cache[at];
  return vec4f(unpack2x16float(words.x), unpack2x16float(words.y));
}
#endif
#endif
#if KV == "f32"
@bind var<storage, read> k_cache: array<vec4f>;
#if not NOPE
@bind var<storage, read> v_cache: array<vec4f>;
#endif

fn cached_key(at: u32, page: u32) -> vec4f {
  return k_cache[at];
}
#if not NOPE

fn cached_value(at: u32, page: u32) -> vec4f {
  return v_cache[at];
}
#endif
#endif
#if KV == "q8_0"
@bind var<storage, read> k_cache: array<u32>;
@bind var<storage, read> v_cache: array<u32>;

fn cached_key(at: u32, page: u32) -> vec4f {
  return unpack4x8snorm(k_cache[word_at(at, page)]) * bitcast<f32>(k_cache[scale_at(at, page)]);
}

fn cached_value(at: u32, page: u32) -> vec4f {
  return unpack4x8snorm(v_cache[word_at(at, page)]) * bitcast<f32>(v_cache[scale_at(at, page)]);
}
#endif
