// The book of the FP4 types, floats of four bits (E2M1) times two: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives. So scales are
// halved.
#include "quants/codebook.wgsl"

fn book_numbers(q: vec4u) -> Numbers {
  let l1 = q << vec4u(1);
  let l2 = q << vec4u(2);
  let r1 = q >> vec4u(1);
  let r2 = q >> vec4u(2);
  let sizes = nibbles_of(q & ~r2, r1 ^ (q | (r1 & ~l1)), q & ~(l1 & ~l2), l1 & l2);
  let ones = (q | r1 | r2) & (q >> vec4u(3)) & vec4u(0x11111111u); // in the nibbles of negative numbers, not of -0
  let signs = ones * 15u;
  return numbers_of((sizes ^ signs) + ones, signs);
}
