// Rows of x as signed bytes, normalised first (RMS) where there is a norm: what matvecs.wgsl meets integer matrices with.
// Groups of 32 share a scale, as in quantize_x.wgsl. A thread a group; grid (groups / WG, tokens).
#param COLS
#param NORM
#param WG
#param SG

struct Params {
  eps: f32,
}
#include "state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<vec4f>; // (n, COLS padded)
#if NORM
@bind var<storage, read> norm: array<vec4f>; // (COLS padded)
#endif
@bind var<storage, read_write> xq: array<vec4u>; // (n, GROUPS, 2)
@bind var<storage, read_write> xq_scale: array<vec2f>; // (n, GROUPS): scale, scale x sum of the group
#include "reduce.wgsl"

const GROUPS = COLS / 32u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  if (m >= state.n) { // uniform: state does not change within a dispatch
    return;
  }
  let x0 = m * GROUPS * 8u;
  var scale = 1.0;
#if NORM
  var squares = 0.0;
  for (var i = t; i < GROUPS * 8u; i += WG) {
    let v = x[x0 + i];
    squares += dot(v, v);
  }
  scale = inverseSqrt(workgroup_sum(squares, t) / f32(COLS) + p.eps);
#endif
  let g = wid.x * WG + t;
  if (g >= GROUPS) {
    return;
  }
  var v = array<vec4f, 8>();
  var top = vec4f(0);
#for i in 8
  v[${i}] = x[x0 + g * 8u + ${i}u] * scale;
#if NORM
  v[${i}] *= norm[g * 8u + ${i}u];
#endif
  top = max(top, abs(v[${i}]));
#endfor
  let most = max(max(top.x, top.y), max(top.z, top.w));
  let step = most / 127.0;
  let inverse = select(0.0, 127.0 / most, most > 0.0);
  var words = array<u32, 8>();
  var sum = 0;
#for i in 8
  words[${i}] = pack4xI8(vec4i(round(v[${i}] * inverse)));
  sum += dot4I8Packed(words[${i}], 0x01010101u);
#endfor
  let at = m * GROUPS + g;
  xq[2u * at] = vec4u(words[0], words[1], words[2], words[3]);
  xq[2u * at + 1u] = vec4u(words[4], words[5], words[6], words[7]);
  xq_scale[at] = vec2f(step, step * f32(sum));
}
