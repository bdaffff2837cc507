// MXFP4: a group is 32 floats of four bits, and a byte e for the scale 2^(e - 127) (OCP Microscaling Formats 1.0).
@bind var<storage, read> w_qs: array<vec4u>;
@bind var<storage, read> w_d: array<u32>; // four exponents per word
#include "quants/fp4_book.wgsl"
#include "quants/one_scale.wgsl"

fn w_fetch(row: u32, g: u32) -> Packed {
  let at = row * W_GROUPS + g;
  let e = (w_d[at / 4u] >> (8u * (at & 3u))) & 0xffu;
  let bits = select((e - 1u) << 23u, 0x00200000u << e, e < 2u);
  return Packed(w_qs[at], bitcast<f32>(bits));
}
