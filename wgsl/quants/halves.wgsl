// Dequantisation to f16 in packed arithmetic, twice as fast as by way of f32: for the mat-mul kernels.
#include "lib/half_bits.wgsl"

// Four signed bytes, times `scale`, minus `minimum`. A byte in the mantissa of 1024 is exact in f16.
fn halves_of_bytes(bytes: u32, scale: f16, minimum: f16) -> vec4<f16> {
  let even = half_pair((bytes & 0x00ff00ffu) ^ 0x64806480u) - vec2<f16>(1152);
  let odd = half_pair(((bytes >> 8u) & 0x00ff00ffu) ^ 0x64806480u) - vec2<f16>(1152);
  let a = fma(even, vec2<f16>(scale), vec2<f16>(-minimum));
  let b = fma(odd, vec2<f16>(scale), vec2<f16>(-minimum));
  return vec4<f16>(a.x, b.x, a.y, b.y);
}

// What matmul_matrix.wgsl has in registers between loading and storing a group: less than the halves, and no thread waits.
alias Held = Group;

fn w_held(row: u32, g: u32) -> Held {
  return w_load(row, g);
}

fn held_halves(w: Held) -> array<vec4<f16>, 8> {
  let s = vec2<f16>(w.s);
  let t = vec2<f16>(w.t);
  return array(
    halves_of_bytes(w.a.x, s.x, s.y), halves_of_bytes(w.a.y, s.x, s.y),
    halves_of_bytes(w.a.z, s.x, s.y), halves_of_bytes(w.a.w, s.x, s.y),
    halves_of_bytes(w.b.x, t.x, t.y), halves_of_bytes(w.b.y, t.x, t.y),
    halves_of_bytes(w.b.z, t.x, t.y), halves_of_bytes(w.b.w, t.x, t.y));
}

fn w_halves(row: u32, g: u32) -> array<vec4<f16>, 8> {
  return held_halves(w_load(row, g));
}
