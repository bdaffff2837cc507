// Q5_K: as Q4_K, with a fifth bit: bit `sub` of byte j of the block's first 32 belongs to number j of group `sub`.
@bind var<storage, read> w_qs: array<vec4u>; // 10 a block: fifth bits, nibbles
#include "quants/k_scales.wgsl"
#include "quants/group.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let top = block * 10u;
  let at = top + 2u + sub / 2u * 2u;
  let shift = vec4u(4u * (sub & 1u));
  let a = ((w_qs[at] >> shift) & vec4u(0x0f0f0f0f)) | (((w_qs[top] >> vec4u(sub)) & vec4u(0x01010101)) << vec4u(4));
  let b = ((w_qs[at + 1u] >> shift) & vec4u(0x0f0f0f0f)) | (((w_qs[top + 1u] >> vec4u(sub)) & vec4u(0x01010101)) << vec4u(4));
  let s = k_scales(block, sub);
  return Group(a, b, s, s);
}
