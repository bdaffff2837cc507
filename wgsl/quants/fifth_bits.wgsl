// Four bits of `bits` from `first` on, each as bit 4 of a byte.
fn fifth_bits4(bits: u32, first: u32) -> u32 {
  let b = bits >> first;
  return ((b & 1u) << 4u) | ((b & 2u) << 11u) | ((b & 4u) << 18u) | ((b & 8u) << 25u);
}

// Bits of the 16 numbers from `first` on.
fn fifth_bits(bits: u32, first: u32) -> vec4u {
  return vec4u(fifth_bits4(bits, first), fifth_bits4(bits, first + 4u), fifth_bits4(bits, first + 8u), fifth_bits4(bits, first + 12u));
}
