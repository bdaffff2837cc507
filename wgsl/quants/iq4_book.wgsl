// The book of the IQ4 types: -127, -104, -83, -65; -49, -35, -22, -10; 1, 13, 25, 38; 53, 69, 89, 113.
#include "quants/codebook.wgsl"

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

// Bits of the numbers, of bits 0 to 3 of the codes.
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
