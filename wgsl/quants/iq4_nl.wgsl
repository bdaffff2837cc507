// IQ4_NL: a group is 16 bytes of indices into an uneven codebook, and a scale.
@bind var<storage, read> w_qs: array<vec4u>;
#include "quants/scale.wgsl"
#include "quants/iq4_book.wgsl"
#include "quants/one_scale.wgsl"

fn w_fetch(row: u32, g: u32) -> Packed {
  let at = row * W_GROUPS + g;
  return Packed(w_qs[at], w_scale(at));
}
