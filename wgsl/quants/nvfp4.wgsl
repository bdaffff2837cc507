// NVFP4: a block is 64 floats of four bits, and four scales of 16 each: unsigned floats of eight bits (E4M3). Of a scale's
// eight bytes, the low nibbles have its first eight elements.
@bind var<storage, read> w_qs: array<vec4u>; // 2 per block, one per group
@bind var<storage, read> w_d: array<u32>; // four scales per block
#include "quants/fp4_book.wgsl"

struct Packed {
  q: vec4u,
  scales: u32,
}

fn w_e4m3(x: u32) -> f32 { // half of it; 127 stands for NaN, which ggml reads as zero
  let e = (x >> 3u) & 15u;
  let m = x & 7u;
  let v = select(bitcast<f32>(((e + 119u) << 23u) | (m << 20u)), f32(m) * 0.0009765625, e == 0u);
  return select(v, 0.0, x == 127u);
}

fn w_fetch(row: u32, g: u32) -> Packed {
  let at = row * W_GROUPS + g;
  return Packed(w_qs[at], w_d[at / 2u] >> (16u * (at & 1u)));
}

fn unpacked(w: Packed) -> Group {
  let n = book_numbers(w.q);
  return Group(
    vec4u(n.low.xy, n.high.xy), vec4u(n.low.zw, n.high.zw),
    vec2f(w_e4m3(w.scales & 0xffu), 0.0), vec2f(w_e4m3((w.scales >> 8u) & 0xffu), 0.0));
}

fn w_dot(w: Packed, g: u32, x: array<Bytes, 1>) -> f32 {
  let group = unpacked(w);
  return x[0].s.x * fma(group.s.x, bytes_dot(group.a, x[0].a), group.t.x * bytes_dot(group.b, x[0].b));
}

fn w_load(row: u32, g: u32) -> Group {
  return unpacked(w_fetch(row, g));
}
