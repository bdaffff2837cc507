// Q3_K: each half of a block is four groups in 32 bytes, two bits of each byte to a group. The third bit: bit `sub` of
// byte j of the block's first 32 belongs to number j of group `sub`; where it is clear, the number is 4 less. Sixteen
// numbers share a scale of six bits, 32 too big: the lower four lie in eight bytes (scales 0 to 7 in the low nibbles,
// 8 to 15 in the high ones), the upper two in the four bytes behind (scale i in byte i % 4).
@bind var<storage, read> w_qs: array<vec4u>; // 6 a block: third bits, lower bits
@bind var<storage, read> w_d: array<vec4u>; // scales, d
#include "quants/group.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let top = block * 6u;
  let low = top + 2u + sub / 4u * 2u;
  let pair = vec4u(2u * (sub & 3u));
  let a = ((w_qs[low] >> pair) & vec4u(0x03030303)) | (((w_qs[top] >> vec4u(sub)) & vec4u(0x01010101)) << vec4u(2));
  let b = ((w_qs[low + 1u] >> pair) & vec4u(0x03030303)) | (((w_qs[top + 1u] >> vec4u(sub)) & vec4u(0x01010101)) << vec4u(2));
  let r = w_d[block];
  let d = unpack2x16float(r.w).x;
  let bytes = 16u * (sub & 1u); // two scales of this group, in two neighbouring bytes
  let lower = select(r.x, r.y, (sub & 2u) != 0u) >> (bytes + 4u * (sub / 4u));
  let upper = r.z >> (bytes + 2u * (sub / 2u));
  let s = d * (f32((lower & 15u) | ((upper & 3u) << 4u)) - 32.0);
  let t = d * (f32(((lower >> 8u) & 15u) | (((upper >> 8u) & 3u) << 4u)) - 32.0);
  return Group(a, b, vec2f(s, 4.0 * s), vec2f(t, 4.0 * t));
}
