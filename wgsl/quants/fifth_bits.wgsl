// Fifth bits of 16 elements, from bit `first` of a word on: each becomes bit 4 of a byte.
fn fifth_bits(word: u32, first: u32) -> vec4u {
  let bits = (vec4u(word) >> (vec4u(first) + vec4u(0, 4, 8, 12))) & vec4u(15);
  return (bits * 0x02040810u) & vec4u(0x10101010); // the sum of the bits shifted by 4, 11, 18 and 25
}
