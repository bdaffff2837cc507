// Spreads small numbers over the bytes of a word, one number per byte.

fn spread_bits(bits: u32) -> u32 { // the low four bits
  let b = bits & 15u;
  return (b | (b << 7u) | (b << 14u) | (b << 21u)) & 0x01010101u;
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
