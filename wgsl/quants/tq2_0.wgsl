// TQ2_0: elements -1, 0 or 1, stored + 1. Each half of a block is four groups in 32 bytes; every byte has two bits of each
// group.
@bind var<storage, read> w_qs: array<vec4u>; // 4 per block
#include "quants/scale.wgsl"
#include "quants/group.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let at = block * 4u + sub / 4u * 2u;
  let pair = vec4u(2u * (sub & 3u));
  let s = vec2f(w_scale(block));
  return Group((w_qs[at] >> pair) & vec4u(0x03030303), (w_qs[at + 1u] >> pair) & vec4u(0x03030303), s, s);
}
