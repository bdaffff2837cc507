// The book of the IQ4 types: -127, -104, -83, -65; -49, -35, -22, -10; 1, 13, 25, 38; 53, 69, 89, 113.
#include "quants/codebook.wgsl"
#param F16
#param HALF_BITS

#if F16 and HALF_BITS
// Two codes at a time, in packed f16, which GPUs compute on other units than integers. A polynomial of degree 5 of c, a code
// less 9, is within 0.38 of every number, whether fma() rounds once or twice. Between 1024 and 2048, f16 has whole numbers only:
// so 1536 + the polynomial rounds to 1536 + the number, and the low byte of the mantissa is the number as a signed byte.
fn iq4_pair(c: vec2<f16>) -> u32 { // two codes less 9 -> their numbers in bytes 0 and 2; bytes 1 and 3 are not used
  var v = fma(c, vec2<f16>(0.0001461505889892578), vec2<f16>(0.002178192138671875));
  v = fma(c, v, vec2<f16>(0.0794677734375));
  v = fma(c, v, vec2<f16>(0.2196044921875));
  v = fma(c, v, vec2<f16>(11.765625));
  return bitcast<u32>(fma(c, v, vec2<f16>(1549)));
}

// The numbers of the low nibbles of bytes 0 and 2. 0x6400 is 1024: a code in its mantissa makes it 1024 + the code.
fn iq4_low(q: u32) -> u32 {
  return iq4_pair(bitcast<vec2<f16>>((q & 0x000f000fu) | 0x64006400u) - vec2<f16>(1033));
}

// The numbers of the high nibbles: here, 1024 + 16 times the code.
fn iq4_high(q: u32) -> u32 {
  return iq4_pair(fma(bitcast<vec2<f16>>((q & 0x00f000f0u) | 0x64006400u), vec2<f16>(0.0625), vec2<f16>(-73)));
}

fn iq4_bytes(even: vec4u, odd: vec4u) -> vec4u {
  return bits_of(0x00ff00ffu, even, odd << vec4u(8));
}

fn book_numbers(q: vec4u) -> Numbers {
  let odd = q >> vec4u(8);
  return Numbers(
    iq4_bytes(
      vec4u(iq4_low(q.x), iq4_low(q.y), iq4_low(q.z), iq4_low(q.w)),
      vec4u(iq4_low(odd.x), iq4_low(odd.y), iq4_low(odd.z), iq4_low(odd.w))),
    iq4_bytes(
      vec4u(iq4_high(q.x), iq4_high(q.y), iq4_high(q.z), iq4_high(q.w)),
      vec4u(iq4_high(odd.x), iq4_high(odd.y), iq4_high(odd.z), iq4_high(odd.w))));
}
#else
fn book_numbers(q: vec4u) -> Numbers {
  let l1 = q << vec4u(1);
  let l2 = q << vec4u(2);
  let l3 = q << vec4u(3);
  let r1 = q >> vec4u(1);
  let r2 = q >> vec4u(2);
  let r3 = q >> vec4u(3);
  return numbers_of(
    nibbles_of(iq4_bit0(q, r1, r2, r3), iq4_bit1(l1, q, r1, r2), iq4_bit2(l2, l1, q, r1), iq4_bit3(l3, l2, l1, q)),
    nibbles_of(iq4_bit4(q, r1, r2, r3), iq4_bit5(l1, q, r1, r2), iq4_bit6(l2, l1, q, r1), ~q));
}

// The bits of the numbers, from bits 0 to 3 of the codes.
fn iq4_bit0(b0: vec4u, b1: vec4u, b2: vec4u, b3: vec4u) -> vec4u {
  return (b1 ^ b2 ^ (b3 & (b1 | ~b2))) | ~(b0 | b2);
}

fn iq4_bit1(b0: vec4u, b1: vec4u, b2: vec4u, b3: vec4u) -> vec4u {
  let h = b0 & (b1 ^ b2);
  return h ^ (b2 & (h | ~b3));
}

fn iq4_bit2(b0: vec4u, b1: vec4u, b2: vec4u, b3: vec4u) -> vec4u {
  let of_0 = b0 ^ ((b0 ^ b1) & ~b3); // where b2 is 0
  let of_1 = (b0 & ~b3) | ~b1;
  return of_0 ^ (b2 & (of_0 ^ of_1));
}

fn iq4_bit3(b0: vec4u, b1: vec4u, b2: vec4u, b3: vec4u) -> vec4u {
  let of_0 = (b0 ^ b1) | (b0 ^ b2); // where b3 is 0
  let of_1 = b0 ^ (b1 | (b0 & b2));
  return of_0 ^ (b3 & (of_0 ^ of_1));
}

fn iq4_bit4(b0: vec4u, b1: vec4u, b2: vec4u, b3: vec4u) -> vec4u {
  return b0 ^ (b3 & ((b0 ^ b1) | (b0 ^ b2)));
}

fn iq4_bit5(b0: vec4u, b1: vec4u, b2: vec4u, b3: vec4u) -> vec4u {
  return b1 ^ (b3 & (b1 | b2) & ~b0);
}

fn iq4_bit6(b0: vec4u, b1: vec4u, b2: vec4u, b3: vec4u) -> vec4u {
  return b2 & (b0 | b1 | ~b3);
}
#endif
