// NVFP4: a block is 64 floats of four bits, and four scales of 16 each: unsigned floats of eight bits (E4M3). Of a scale's
// eight bytes, the low nibbles have its first eight elements. The codebook holds the floats times two, as mxfp4.wgsl's, so
// the scales are halved.
@bind var<storage, read> w_qs: array<vec4u>; // 2 per block, one per group
@bind var<storage, read> w_d: array<u32>; // four scales per block
#include "quants/codebook.wgsl"

fn w_e4m3(x: u32) -> f32 { // half of it; 127 stands for NaN, which ggml reads as zero
  let e = (x >> 3u) & 15u;
  let m = x & 7u;
  let v = select(bitcast<f32>(((e + 119u) << 23u) | (m << 20u)), f32(m) * 0.0009765625, e == 0u);
  return select(v, 0.0, x == 127u);
}

fn w_load(row: u32, g: u32) -> Group {
  let at = row * W_GROUPS + g;
  let scales = w_d[at / 2u] >> (16u * (at & 1u));
  let q = w_qs[at];
  let h = q >> vec4u(4);
  let book = vec4u(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
  return Group(
    vec4u(look_up4(q.x, book), look_up4(q.y, book), look_up4(h.x, book), look_up4(h.y, book)),
    vec4u(look_up4(q.z, book), look_up4(q.w, book), look_up4(h.z, book), look_up4(h.w, book)),
    vec2f(w_e4m3(scales & 0xffu), 0.0), vec2f(w_e4m3((scales >> 8u) & 0xffu), 0.0));
}
