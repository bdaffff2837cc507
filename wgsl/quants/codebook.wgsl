// Codebook types: a code of four bits stands for one of 16 signed bytes. Byte j of a group has element j in its low nibble and
// element j + 16 in its high nibble. The fragment of a book converts all codes of a word at once: to look one number up after the
// other takes twice as long. It computes each bit of the numbers from the codes' bits, or the numbers by a polynomial.
#include "quants/groups.wgsl"

struct Numbers {
  low: vec4u, // four signed bytes in each word: of the low nibbles
  high: vec4u, // of the high nibbles
}

fn bits_of(mask: u32, a: vec4u, b: vec4u) -> vec4u { // those of `a` where the mask's are 1, else those of `b`
  return b ^ ((a ^ b) & vec4u(mask));
}

// Nibbles whose bit i is that of the i-th argument's nibble.
fn nibbles_of(b0: vec4u, b1: vec4u, b2: vec4u, b3: vec4u) -> vec4u {
  return bits_of(0x33333333u, bits_of(0x55555555u, b0, b1), bits_of(0x55555555u, b2, b3));
}

// `lower`, `upper`: the lower and upper halves of the numbers, in the nibbles of their codes.
fn numbers_of(lower: vec4u, upper: vec4u) -> Numbers {
  return Numbers(
    bits_of(0x0f0f0f0fu, lower, upper << vec4u(4)), bits_of(0xf0f0f0f0u, upper, lower >> vec4u(4)));
}
