// Reads of cached keys and values in two steps, so that a thread can have many loads in flight: fetched() loads the stored
// bits of four dimensions, converted() makes numbers of them. Part of attention.wgsl.
#if F16
#include "lib/half_bits.wgsl"
alias h4 = vec4<f16>;
#else
alias h4 = vec4f;
#endif

#if NOPE
alias Fetched = h4;

fn converted(stored: Fetched) -> h4 {
  return stored;
}
#else
#if KV == "f16"
alias Fetched = vec2u;

fn converted(stored: Fetched) -> h4 {
#if F16
  return h4(half_pair(stored.x), half_pair(stored.y));
#else
  return h4(unpack2x16float(stored.x), unpack2x16float(stored.y));
#endif
}
#endif
#if KV == "f32"
alias Fetched = vec4f;

fn converted(stored: Fetched) -> h4 {
  return h4(stored);
}
#endif
#if KV == "q8_0"
struct Fetched {
  word: u32,
  scale: f32,
}

fn converted(stored: Fetched) -> h4 {
  return h4(unpack4x8snorm(stored.word) * stored.scale);
}
#endif
#endif

// Four dimensions, from 4 * c on, of the key or value at position s, which is in `page`.
fn fetched(values: bool, page: u32, s: u32, head: u32, c: u32) -> Fetched {
#if NOPE
  if (values || c < NOPE / 4u) {
    return h4(expanded[expanded_at(values, s, head) + c]);
  }
  return h4(cached_key(row_in(page, s) * (ROW / 4u) + c - NOPE / 4u, page));
#else
  let at = (row_in(page, s) * p.n_head_kv + head) * VECS + c;
#if KV == "q8_0"
  if (values) {
    return Fetched(v_cache[word_at(at, page)], bitcast<f32>(v_cache[scale_at(at, page)]));
  }
  return Fetched(k_cache[word_at(at, page)], bitcast<f32>(k_cache[scale_at(at, page)]));
#else
  if (values) {
    return v_cache[at];
  }
  return k_cache[at];
#endif
#endif
}
