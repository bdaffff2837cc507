// IQ4_XS: groups as in IQ4_NL, eight per block, each with a scale of six bits, stored + 32: the lower four bits in a nibble
// of the record's second word, the upper two after d.
@bind var<storage, read> w_qs: array<vec4u>; // one per group
@bind var<storage, read> w_d: array<vec2u>; // d and upper bits, lower bits
#include "quants/iq4_book.wgsl"
#include "quants/one_scale.wgsl"

fn w_fetch(row: u32, g: u32) -> Packed {
  let sub = g % 8u;
  let r = w_d[row * (W_GROUPS / 8u) + g / 8u];
  let scale = ((r.y >> (4u * sub)) & 15u) | (((r.x >> (16u + 2u * sub)) & 3u) << 4u);
  return Packed(w_qs[row * W_GROUPS + g], unpack2x16float(r.x).x * (f32(scale) - 32.0));
}
