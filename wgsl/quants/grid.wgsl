// Grid types: an index stands for a pattern of eight codes of two bits, or four codes of four bits. w_d begins with the GRID
// patterns, 16 bits each. The blocks' records follow; unless a fragment says otherwise, a record is d, an f16.
@bind var<storage, read> w_d: array<u32>;
#include "quants/group.wgsl"
#include "quants/spread.wgsl"

fn grid_half(at: u32) -> u32 { // half-word `at` of w_d
  return (w_d[at / 2u] >> (16u * (at & 1u))) & 0xffffu;
}

fn grid_float(at: u32) -> f32 {
  return unpack2x16float(grid_half(at)).x;
}

// Negates the bytes whose bit in the low four bits of `signs` is 1. No byte is 0.
fn grid_signed(bytes: u32, signs: u32) -> u32 {
  let ones = spread_bits(signs);
  return (bytes ^ (ones * 255u)) + ones;
}

// Eight signs from the seven stored ones: the number of set bits is even.
fn grid_signs(seven: u32) -> u32 {
  return (seven & 127u) | ((countOneBits(seven & 127u) & 1u) << 7u);
}

// Four elements of the IQ2 types from a byte of four codes: 0, 1, 2 become 8, 25, 43.
fn grid_iq2(byte: u32) -> u32 {
  let c = spread_pairs(byte);
  return c * 17u + ((c >> 1u) & 0x01010101u) + 0x08080808u;
}

// A group from its words in order; `s` and `t` are the scales of its halves.
fn grid_group(q: array<u32, 8>, s: f32, t: f32, offset: f32) -> Group {
  return Group(vec4u(q[0], q[1], q[2], q[3]), vec4u(q[4], q[5], q[6], q[7]), s * vec2f(1.0, offset), t * vec2f(1.0, offset));
}
