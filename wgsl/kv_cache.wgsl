// The cache of one layer, as attention reads it: rows of n_head_kv x HEAD_DIM values, in vectors of four.
#param KV // "f16", "f32" or "q8_0": of each sequence, bytes of its rows, then the steps of their groups of 32
#param KV_ROWS // of a sequence
#param RING // rows of a layer that keeps only its window, position s in row s % RING; 0: a row for every position
#if KV == "f16"
@bind var<storage, read> k_cache: array<vec2u>; // f16 pairs; unpack2x16float needs no shader-f16
@bind var<storage, read> v_cache: array<vec2u>;

fn cached_key(at: u32, seq: u32) -> vec4f {
  let words = k_cache[at];
  return vec4f(unpack2x16float(words.x), unpack2x16float(words.y));
}

fn cached_value(at: u32, seq: u32) -> vec4f {
  let words = v_cache[at];
  return vec4f(unpack2x16float(words.x), unpack2x16float(words.y));
}
#endif
#if KV == "f32"
@bind var<storage, read> k_cache: array<vec4f>;
@bind var<storage, read> v_cache: array<vec4f>;

fn cached_key(at: u32, seq: u32) -> vec4f {
  return k_cache[at];
}

fn cached_value(at: u32, seq: u32) -> vec4f {
  return v_cache[at];
}
#endif
#if KV == "q8_0"
@bind var<storage, read> k_cache: array<u32>;
@bind var<storage, read> v_cache: array<u32>;

fn value_at(at: u32, seq: u32) -> u32 { // behind the steps of the sequences before
  return at + seq * KV_ROWS * p.n_head_kv * (HEAD_DIM / 32u);
}

fn step_at(at: u32, seq: u32) -> u32 {
  return at / 8u + (seq + 1u) * KV_ROWS * p.n_head_kv * (HEAD_DIM / 4u);
}

fn cached_key(at: u32, seq: u32) -> vec4f {
  return unpack4x8snorm(k_cache[value_at(at, seq)]) * bitcast<f32>(k_cache[step_at(at, seq)]);
}

fn cached_value(at: u32, seq: u32) -> vec4f {
  return unpack4x8snorm(v_cache[value_at(at, seq)]) * bitcast<f32>(v_cache[step_at(at, seq)]);
}
#endif

// The row that a position of a sequence lies in.
fn cached_row(s: u32, seq: u32) -> u32 {
#if RING
  return seq * KV_ROWS + s % RING;
#else
  return seq * KV_ROWS + s;
#endif
}
