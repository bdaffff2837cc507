// Q4_K: a block of 256 is 128 bytes. Each 32 bytes are a pair of groups: one in the low nibbles, one in the high nibbles.
@bind var<storage, read> w_qs: array<vec4u>; // 8 per block
#include "quants/k_scales.wgsl"
#if GROUPS_PER_THREAD == 2
#include "quants/groups.wgsl"
#include "quants/k_pair.wgsl"
#else
#include "quants/group.wgsl"
#endif

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let at = block * 8u + sub / 2u * 2u;
  let shift = vec4u(4u * (sub & 1u));
  let s = k_scales(block, sub);
  return Group((w_qs[at] >> shift) & vec4u(0x0f0f0f0f), (w_qs[at + 1u] >> shift) & vec4u(0x0f0f0f0f), s, s);
}

#if GROUPS_PER_THREAD == 2
struct Packed {
  a: vec4u,
  b: vec4u,
  s: vec4u,
}

fn w_fetch(row: u32, pair: u32) -> Packed {
  let block = row * (W_GROUPS / 8u) + pair / 4u;
  let at = block * 8u + pair % 4u * 2u;
  return Packed(w_qs[at], w_qs[at + 1u], w_d[block]);
}

fn w_dot(w: Packed, pair: u32, x: array<Bytes, 2>) -> f32 {
  let nibble = vec4u(0x0f0f0f0f);
  return pair_dot(
    array(w.a & nibble, w.b & nibble), array((w.a >> vec4u(4)) & nibble, (w.b >> vec4u(4)) & nibble),
    k_scales_of_pair(w.s, pair % 4u), x);
}
#endif
