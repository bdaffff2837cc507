// Q5_K: as Q4_K, with fifth bits in the block's first 32 bytes: bit `sub` of byte j belongs to element j of group `sub`.
@bind var<storage, read> w_qs: array<vec4u>; // 10 per block: fifth bits, nibbles
#include "quants/k_scales.wgsl"
#if GROUPS_PER_THREAD == 2
#include "quants/groups.wgsl"
#include "quants/k_pair.wgsl"
#else
#include "quants/group.wgsl"
#endif

fn fifth_bits_of(tops: vec4u, sub: u32) -> vec4u {
  return ((tops >> vec4u(sub)) & vec4u(0x01010101)) << vec4u(4);
}

fn w_load(row: u32, g: u32) -> Group {
  let block = row * (W_GROUPS / 8u) + g / 8u;
  let sub = g % 8u;
  let top = block * 10u;
  let at = top + 2u + sub / 2u * 2u;
  let shift = vec4u(4u * (sub & 1u));
  let a = ((w_qs[at] >> shift) & vec4u(0x0f0f0f0f)) | fifth_bits_of(w_qs[top], sub);
  let b = ((w_qs[at + 1u] >> shift) & vec4u(0x0f0f0f0f)) | fifth_bits_of(w_qs[top + 1u], sub);
  let s = k_scales(block, sub);
  return Group(a, b, s, s);
}

#if GROUPS_PER_THREAD == 2
struct Packed {
  a: vec4u,
  b: vec4u,
  tops: array<vec4u, 2>,
  s: vec4u,
}

fn w_fetch(row: u32, pair: u32) -> Packed {
  let block = row * (W_GROUPS / 8u) + pair / 4u;
  let top = block * 10u;
  let at = top + 2u + pair % 4u * 2u;
  return Packed(w_qs[at], w_qs[at + 1u], array(w_qs[top], w_qs[top + 1u]), w_d[block]);
}

fn w_dot(w: Packed, pair: u32, x: array<Bytes, 2>) -> f32 {
  let nibble = vec4u(0x0f0f0f0f);
  let sub = pair % 4u * 2u;
  return pair_dot(
    array((w.a & nibble) | fifth_bits_of(w.tops[0], sub), (w.b & nibble) | fifth_bits_of(w.tops[1], sub)),
    array(((w.a >> vec4u(4)) & nibble) | fifth_bits_of(w.tops[0], sub + 1u), ((w.b >> vec4u(4)) & nibble) | fifth_bits_of(w.tops[1], sub + 1u)),
    k_scales_of_pair(w.s, pair % 4u), x);
}
#endif
