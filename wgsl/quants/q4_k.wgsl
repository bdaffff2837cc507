// Q4_K: a block of 256 is 128 bytes; 32 of them hold a pair of groups, one in the low and one in the high nibbles.
@bind var<storage, read> w_qs: array<vec4u>; // 8 a block
#include "quants/k_scales.wgsl"
#include "quants/group.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let at = block * 8u + sub / 2u * 2u;
  let shift = vec4u(4u * (sub & 1u));
  let s = k_scales(block, sub);
  return Group((w_qs[at] >> shift) & vec4u(0x0f0f0f0f), (w_qs[at + 1u] >> shift) & vec4u(0x0f0f0f0f), s, s);
}
