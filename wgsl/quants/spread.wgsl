// Spreads small numbers over the bytes of a word, one number per byte.

fn spread_bits(bits: u32) -> u32 { // the low four bits
  return ((bits & 15u) * 0x00204081u) & 0x01010101u; // the sum of the bits shifted by 0, 7, 14 and 21
}

fn spread_pairs(bits: u32) -> u32 { // four numbers of two bits
  let b = bits & 0xffu;
  return (b | (b << 6u) | (b << 12u) | (b << 18u)) & 0x03030303u;
}

fn spread_nibbles(bits: u32) -> u32 { // four numbers of four bits
  let b = bits & 0xffffu;
  let two = (b | (b << 8u)) & 0x00ff00ffu;
  return (two | (two << 4u)) & 0x0f0f0f0fu;
}
