// Q2_K: each half of a block is four groups in 32 bytes; every byte has two bits of each group. Sixteen elements share a
// byte with a scale in its low nibble and a minimum in its high nibble.
@bind var<storage, read> w_qs: array<vec4u>; // 4 per block
@bind var<storage, read> w_d: array<u32>; // 5 per block: scales and minima, d and dmin
#include "quants/group.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let at = block * 4u + sub / 4u * 2u;
  let pair = vec4u(2u * (sub & 3u));
  let d = unpack2x16float(w_d[block * 5u + 4u]);
  let bytes = w_d[block * 5u + sub / 2u] >> (16u * (sub & 1u));
  let s = vec4f((vec4u(bytes) >> vec4u(0, 4, 8, 12)) & vec4u(15));
  return Group((w_qs[at] >> pair) & vec4u(0x03030303), (w_qs[at + 1u] >> pair) & vec4u(0x03030303), d * s.xy, d * s.zw);
}
