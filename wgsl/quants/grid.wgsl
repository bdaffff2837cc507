// What the types with a grid share. w_d begins with GRID patterns of 16 bits: eight numbers of two bits, or four of
// four. The records of w_d follow; where there is no other note, they are the d of each block.
@bind var<storage, read> w_d: array<u32>;

fn grid_half(at: u32) -> u32 { // half-word `at` of w_d
  return (w_d[at / 2u] >> (16u * (at & 1u))) & 0xffffu;
}

fn grid_float(at: u32) -> f32 {
  return unpack2x16float(grid_half(at)).x;
}

// The two-bit numbers of a byte.
fn grid_pairs(bits: u32) -> vec4u {
  return (vec4u(bits) >> vec4u(0, 2, 4, 6)) & vec4u(3);
}

// v, negated where the bits of `signs` say so.
fn grid_signed(v: vec4f, signs: u32) -> vec4f {
  return select(v, -v, (vec4u(signs) & vec4u(1, 2, 4, 8)) != vec4u(0));
}

// Eight signs of which seven are stored: the number of set bits is even.
fn grid_signs(seven: u32) -> u32 {
  return (seven & 127u) | ((countOneBits(seven & 127u) & 1u) << 7u);
}
