// Stores two neighbouring values in CACHE, an array of u32: pairs of f16, or f32.
#param KV // element type: "f16" or "f32"

fn store_pair(at: u32, v: vec2f) { // at: even index of a value
#if KV == "f16"
  CACHE[at / 2u] = pack2x16float(v);
#else
  let words = bitcast<vec2u>(v);
  CACHE[at] = words.x;
  CACHE[at + 1u] = words.y;
#endif
}
