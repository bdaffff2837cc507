// The cache of one layer, as attention reads it: (n_ctx, n_head_kv, HEAD_DIM) in vectors of four.
#if KV_F16
@bind var<storage, read> k_cache: array<vec2u>; // f16 pairs; unpack2x16float needs no shader-f16
@bind var<storage, read> v_cache: array<vec2u>;

fn cached_key(at: u32) -> vec4f {
  let words = k_cache[at];
  return vec4f(unpack2x16float(words.x), unpack2x16float(words.y));
}

fn cached_value(at: u32) -> vec4f {
  let words = v_cache[at];
  return vec4f(unpack2x16float(words.x), unpack2x16float(words.y));
}
#else
@bind var<storage, read> k_cache: array<vec4f>;
@bind var<storage, read> v_cache: array<vec4f>;

fn cached_key(at: u32) -> vec4f {
  return k_cache[at];
}

fn cached_value(at: u32) -> vec4f {
  return v_cache[at];
}
#endif
