// Two f16 from their bits.
#param HALF_BITS

fn half_pair(bits: u32) -> vec2<f16> {
#if HALF_BITS
  return bitcast<vec2<f16>>(bits);
#else
  return vec2<f16>(unpack2x16float(bits)); // the same values: Firefox's compiler has no bitcast to f16
#endif
}
