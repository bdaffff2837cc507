// Fifth bits of 16 elements, from bit `first` of a word on: each becomes bit 4 of a byte.
#include "quants/spread.wgsl"

fn fifth_bits(word: u32, first: u32) -> vec4u {
  let w = word >> first;
  return vec4u(spread_bits(w), spread_bits(w >> 4u), spread_bits(w >> 8u), spread_bits(w >> 12u)) << vec4u(4);
}
