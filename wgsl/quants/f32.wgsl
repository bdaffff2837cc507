// F32: a group is 32 f32.
@bind var<storage, read> w_qs: array<vec4f>;

fn w_floats(at: u32, step: u32) -> array<vec4f, 8> {
  var out: array<vec4f, 8>;
  for (var i = 0u; i < 8u; i++) {
    out[i] = w_qs[at + i * step];
  }
  return out;
}
#include "quants/floats.wgsl" with LOADS=8u
#if HALVES

fn w_halves(row: u32, g: u32) -> array<vec4<f16>, 8> {
  let w = w_group(row, g);
  return array(
    vec4<f16>(w[0]), vec4<f16>(w[1]), vec4<f16>(w[2]), vec4<f16>(w[3]),
    vec4<f16>(w[4]), vec4<f16>(w[5]), vec4<f16>(w[6]), vec4<f16>(w[7]));
}
#endif
