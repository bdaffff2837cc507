// MXFP4: a group is 32 floats of four bits, and a byte e for the scale 2^(e - 127) (OCP Microscaling Formats 1.0). The
// codebook holds the floats times two (0, 1, 2, 3, 4, 6, 8, 12 and their negatives), so the scale is halved.
@bind var<storage, read> w_qs: array<vec4u>;
@bind var<storage, read> w_d: array<u32>; // four exponents per word
#include "quants/codebook.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let at = row * W_GROUPS + g;
  let e = (w_d[at / 4u] >> (8u * (at & 3u))) & 0xffu;
  let bits = select((e - 1u) << 23u, 0x00200000u << e, e < 2u);
  return book_group(w_qs[at], bitcast<f32>(bits), vec4u(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu));
}
