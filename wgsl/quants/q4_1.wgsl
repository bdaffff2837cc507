// Q4_1: a group is 16 bytes, a scale and a minimum. Byte j has element j in its low and element j + 16 in its high nibble.
@bind var<storage, read> w_qs: array<vec4u>;
@bind var<storage, read> w_d: array<u32>; // d, m
#include "quants/group.wgsl"

fn w_load(row: u32, g: u32) -> Group {
  let at = row * W_GROUPS + g;
  let q = w_qs[at];
  let s = unpack2x16float(w_d[at]) * vec2f(1.0, -1.0);
  return Group(q & vec4u(0x0f0f0f0f), (q >> vec4u(4)) & vec4u(0x0f0f0f0f), s, s);
}
