// Q6_K: each half of a block is four groups. Their lower four bits are in 64 bytes: groups 0 and 1 in the low nibbles, 2 and
// 3 in the high nibbles. Their upper two bits are in 32 bytes, every byte with two bits of each group. Elements are stored
// + 32. Sixteen elements share a signed scale.
@bind var<storage, read> w_qs: array<vec4u>; // 12 per block: lower bits, upper bits
@bind var<storage, read> w_d: array<u32>; // 5 per block: scales, d
#include "quants/group.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let low = block * 12u + sub / 4u * 4u + (sub & 1u) * 2u;
  let top = block * 12u + 8u + sub / 4u * 2u;
  let nibble = vec4u(4u * ((sub >> 1u) & 1u));
  let pair = vec4u(2u * (sub & 3u));
  let a = ((w_qs[low] >> nibble) & vec4u(0x0f0f0f0f)) | (((w_qs[top] >> pair) & vec4u(0x03030303)) << vec4u(4));
  let b = ((w_qs[low + 1u] >> nibble) & vec4u(0x0f0f0f0f)) | (((w_qs[top + 1u] >> pair) & vec4u(0x03030303)) << vec4u(4));
  let d = unpack2x16float(w_d[block * 5u + 4u]).x;
  let scales = unpack4xI8(w_d[block * 5u + sub / 2u] >> (16u * (sub & 1u)));
  let s = d * f32(scales.x);
  let t = d * f32(scales.y);
  return Group(a, b, vec2f(s, 32.0 * s), vec2f(t, 32.0 * t));
}
