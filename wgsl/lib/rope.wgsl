// Rotary embedding (Su et al. 2021) of queries and keys, and the append of keys and values to the cache.
// Works on quads: the four rows of a head that make two rotated pairs and, in the cache, two whole words.
@bind var<storage, read> rope_freqs: array<u32>; // (ROPE_DIM / 2) turns a position, in 2^-32 turns: wraps exactly
#param KV // "f16", "f32", or "q8_0": f32, of this batch alone, for kv_quantize.wgsl
#param RING // rows of a layer that keeps only its window; 0: a row for every position
#param KV_ROWS // of a sequence
@bind var<storage, read_write> k_cache: array<u32>; // (rows, kv_rows), f16 pairs or f32
@bind var<storage, read_write> v_cache: array<u32>;

const QUADS = HEAD_DIM / 4u;

// The matrix row of slot i: within a head, NEOX quads take rows 2j, 2j + 1 and their partners half a head on.
fn rope_row(i: u32) -> u32 {
  if (NEOX == 0u) {
    return i;
  }
  let quad = i / 4u % QUADS;
  let head = i / HEAD_DIM * HEAD_DIM;
  if (4u * quad >= ROPE_DIM) { // not rotated: neighbours
    return i;
  }
  return head + 2u * quad + (i & 1u) + ((i & 2u) >> 1u) * (ROPE_DIM / 2u);
}

// (cos, sin) of an angle in 2^-32 turns. The built-in ones may be off by 2^-11; here the quadrant is exact and the rest,
// within an eighth of a turn, takes Taylor's polynomials to the last bit.
fn cos_sin(turns: u32) -> vec2f {
  let quadrant = (turns + (1u << 29u)) >> 30u;
  let r = f32(bitcast<i32>(turns - (quadrant << 30u))) * (6.283185307179586 / 4294967296.0);
  let r2 = r * r;
  let c = 1.0 + r2 * (-0.5 + r2 * (1.0 / 24.0 + r2 * (-1.0 / 720.0 + r2 * (1.0 / 40320.0))));
  let s = r * (1.0 + r2 * (-1.0 / 6.0 + r2 * (1.0 / 120.0 + r2 * (-1.0 / 5040.0 + r2 * (1.0 / 362880.0)))));
  let even = select(vec2f(c, s), vec2f(-s, c), (quadrant & 1u) == 1u);
  return select(even, -even, (quadrant & 2u) == 2u);
}

fn turned(v: vec2f, cs: vec2f) -> vec2f {
  return vec2f(v.x * cs.x - v.y * cs.y, v.x * cs.y + v.y * cs.x);
}

// By how much the two pairs of a quad turn, (cos, sin) of each: apart from rope_store, so that a kernel can ask for it
// before it has anything to turn.
fn rope_turns(quad: u32, m: u32) -> vec4f {
  let j = min(2u * (quad % QUADS), max(ROPE_DIM / 2u, 2u) - 2u);
  let pos = pos_of(m);
  return p.rope_scale * vec4f(cos_sin(pos * rope_freqs[j]), cos_sin(pos * rope_freqs[j + 1u]));
}

// The cache's row for token m of the batch.
fn stored_row(m: u32) -> u32 {
#if KV == "q8_0"
  return m;
#else
#if RING
  return seq_of(m) * KV_ROWS + pos_of(m) % RING;
#else
  return seq_of(m) * KV_ROWS + pos_of(m);
#endif
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

// Rotate quad `quad` of token m's stacked q, k and v rows by `turns` and put it where it belongs: queries to y, the rest
// to the cache.
fn rope_store(quad: u32, v: vec4f, turns: vec4f, m: u32, y0: u32) {
  let i = 4u * quad;
  let is_query = i < p.q_rows;
  let is_key = !is_query && i < p.q_rows + p.kv_rows;
  let j = quad % QUADS;
  var rows = vec2u(rope_row(i), rope_row(i + 2u)); // of v.xy and v.zw
  var out = v;
  if ((is_query || is_key) && 4u * j < ROPE_DIM) {
    if (NEOX == 1u) {
      let a = turned(v.xz, turns.xy);
      let b = turned(v.yw, turns.zw);
      out = vec4f(a.x, b.x, a.y, b.y);
    } else {
      out = vec4f(turned(v.xy, turns.xy), turned(v.zw, turns.zw));
    }
  }
  if (is_query) {
    y[y0 + rows.x] = out.x;
    y[y0 + rows.x + 1u] = out.y;
    y[y0 + rows.y] = out.z;
    y[y0 + rows.y + 1u] = out.w;
    return;
  }
  rows -= p.q_rows + select(p.kv_rows, 0u, is_key);
  let at = stored_row(m) * p.kv_rows;
  cache_store(is_key, at + rows.x, out.xy);
  cache_store(is_key, at + rows.y, out.zw);
}
