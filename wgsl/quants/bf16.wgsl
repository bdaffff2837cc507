// BF16: a group is 32 upper halves of f32.
@bind var<storage, read> w_qs: array<vec4u>;

fn w_floats(at: u32, step: u32) -> array<vec4f, 8> {
  var out: array<vec4f, 8>;
  for (var i = 0u; i < 4u; i++) {
    let q = w_qs[at + i * step];
    let even = bitcast<vec4f>(q << vec4u(16));
    let odd = bitcast<vec4f>(q & vec4u(0xffff0000));
    out[2 * i] = vec4f(even.x, odd.x, even.y, odd.y);
    out[2 * i + 1] = vec4f(even.z, odd.z, even.w, odd.w);
  }
  return out;
}
#include "quants/floats.wgsl" with LOADS=4u
#if HALVES

fn w_halves(row: u32, g: u32) -> array<vec4<f16>, 8> {
  let w = w_group(row, g);
  return array(
    vec4<f16>(w[0]), vec4<f16>(w[1]), vec4<f16>(w[2]), vec4<f16>(w[3]),
    vec4<f16>(w[4]), vec4<f16>(w[5]), vec4<f16>(w[6]), vec4<f16>(w[7]));
}
#endif
