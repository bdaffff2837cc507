// Q3_K: each half of a block is four groups in 32 bytes; every byte has two bits of each group. The third bit of element j
// of group `sub` is bit `sub` of byte j of the block's first 32; where it is 0, the element is 4 less. Sixteen elements
// share a scale of six bits, stored + 32: its lower four bits are in eight bytes (scales 0 to 7 in low nibbles, 8 to 15 in
// high nibbles), its upper two in the next four bytes (scale i in byte i % 4).
@bind var<storage, read> w_qs: array<vec4u>; // 6 per block: third bits, lower bits
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
  let bytes = 16u * (sub & 1u); // this group's two scales are in two consecutive bytes
  let lower = select(r.x, r.y, (sub & 2u) != 0u) >> (bytes + 4u * (sub / 4u));
  let upper = r.z >> (bytes + 2u * (sub / 2u));
  let s = d * (f32((lower & 15u) | ((upper & 3u) << 4u)) - 32.0);
  let t = d * (f32(((lower >> 8u) & 15u) | (((upper >> 8u) & 3u) << 4u)) - 32.0);
  return Group(a, b, vec2f(s, 4.0 * s), vec2f(t, 4.0 * t));
}
