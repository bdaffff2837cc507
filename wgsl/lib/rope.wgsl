// Rotary embedding (Su et al. 2021) of queries and keys; appends keys and values to the cache.
// Works on quads: four rows of a head, which are two rotated pairs and two whole words of an f16 cache.
#param AFTER // 1: the kernel sets factors of rotated queries and keys
#param KV // element type of the cache: "f16" or "f32"; "q8_0": this batch alone in f32, for kv_quantize.wgsl
#include "lib/pages.wgsl"
#include "lib/rope_turns.wgsl"
@bind var<storage, read_write> k_cache: array<u32>; // (rows, kv_rows): pairs of f16, or f32
@bind var<storage, read_write> v_cache: array<u32>;

const QUADS = HEAD_DIM / 4u;

// Matrix row of slot i. NEOX: quad j of a head has rows 2j, 2j + 1 and their partners, ROPE_DIM / 2 further on. NEOX 2: the
// same for each half of the ROPE_DIM rows.
fn rope_row(i: u32) -> u32 {
  if (NEOX == 0u) {
    return i;
  }
  let quad = i / 4u % QUADS;
  let head = i / HEAD_DIM * HEAD_DIM;
  if (4u * quad >= ROPE_DIM) { // not rotated: neighbours
    return i;
  }
  const BLOCK = max(ROPE_DIM / max(NEOX, 1u), 4u);
  let block = 4u * quad / BLOCK;
  return head + block * BLOCK + 2u * (quad - block * BLOCK / 4u) + (i & 1u) + ((i & 2u) >> 1u) * (BLOCK / 2u);
}

// Rotation of a quad's two pairs: (cos, sin, cos, sin). Separate from rope_store, so that a kernel can load the
// frequencies before it has the values.
fn rope_rotation(quad: u32, m: u32) -> vec4f {
  let j = min(2u * (quad % QUADS), max(ROPE_DIM / 2u, 2u) - 2u);
  return vec4f(pair_rotation(j, m), pair_rotation(j + 1u, m));
}

#if AFTER
var<private> rotated_by: vec4f; // factors of a quad after its rotation
#endif

// Row of the cache for token m of the batch. Separate from rope_store, as rope_rotation.
fn stored_row(m: u32) -> u32 {
#if KV == "q8_0"
  return m;
#else
  return row_in(page_of(pos_of(m), seq_of(m)), pos_of(m));
#endif
}

fn cache_store(key: bool, at: u32, v: vec2f) { // at: even element index
#if KV == "f16"
  let word = pack2x16float(v);
  if (key) {
    k_cache[at / 2u] = word;
  } else {
    v_cache[at / 2u] = word;
  }
#else
  let words = bitcast<vec2u>(v);
  if (key) {
    k_cache[at] = words.x;
    k_cache[at + 1u] = words.y;
  } else {
    v_cache[at] = words.x;
    v_cache[at + 1u] = words.y;
  }
#endif
}

// Rotates a quad of a token's stacked q, k and v rows and stores it: queries in y from y0 on, keys and values in a row of
// the cache.
fn rope_store(quad: u32, v: vec4f, rotation: vec4f, cache_row: u32, y0: u32) {
  let i = 4u * quad;
  let is_query = i < p.q_rows;
  let is_key = !is_query && i < p.q_rows + p.kv_rows;
  let j = quad % QUADS;
  var rows = vec2u(rope_row(i), rope_row(i + 2u)); // of v.xy and v.zw
  var out = v;
  if ((is_query || is_key) && 4u * j < ROPE_DIM) {
    if (NEOX != 0u) {
      let a = rotate(v.xz, rotation.xy);
      let b = rotate(v.yw, rotation.zw);
      out = vec4f(a.x, b.x, a.y, b.y);
    } else {
      out = vec4f(rotate(v.xy, rotation.xy), rotate(v.zw, rotation.zw));
    }
  }
#if AFTER
  out *= select(vec4f(1), rotated_by, is_query || is_key);
#endif
  if (is_query) {
    y[y0 + rows.x] = out.x;
    y[y0 + rows.x + 1u] = out.y;
    y[y0 + rows.y] = out.z;
    y[y0 + rows.y + 1u] = out.w;
    return;
  }
  rows -= p.q_rows + select(p.kv_rows, 0u, is_key);
  let at = cache_row * p.kv_rows;
  cache_store(is_key, at + rows.x, out.xy);
  cache_store(is_key, at + rows.y, out.zw);
}
