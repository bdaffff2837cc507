// F16: a group is 32 f16. unpack2x16float works without shader-f16.
@bind var<storage, read> w_qs: array<vec4u>;

fn w_floats(at: u32, step: u32) -> array<vec4f, 8> {
  var out: array<vec4f, 8>;
  for (var i = 0u; i < 4u; i++) {
    let q = w_qs[at + i * step];
    out[2 * i] = vec4f(unpack2x16float(q.x), unpack2x16float(q.y));
    out[2 * i + 1] = vec4f(unpack2x16float(q.z), unpack2x16float(q.w));
  }
  return out;
}
#include "quants/floats.wgsl" with LOADS=4u
#if HALVES
#include "lib/half_bits.wgsl"

fn w_halves(row: u32, g: u32) -> array<vec4<f16>, 8> {
  let at = (row * W_GROUPS + g) * 4u;
  var out: array<vec4<f16>, 8>;
#for i in 4
  {
    let q = w_qs[at + ${i}u];
    out[2 * ${i}] = vec4<f16>(half_pair(q.x), half_pair(q.y));
    out[2 * ${i} + 1] = vec4<f16>(half_pair(q.z), half_pair(q.w));
  }
#endfor
  return out;
}
#endif
