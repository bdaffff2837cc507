// Rows of x as signed bytes, normalised first (RMS) where there is a norm: what matvec_small_batch.wgsl meets integer matrices with.
// Groups of 32 share a scale, as in quantize_x.wgsl. LANES threads a group; grid (groups x LANES / WG, tokens).
#param COLS
#param NORM
#param WG
#param SG

struct Params {
  eps: f32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<vec4f>; // (n, COLS padded)
#if NORM
@bind var<storage, read> norm: array<vec4f>; // (COLS padded)
#endif
@bind var<storage, read_write> xq: array<u32>; // (n, GROUPS, 8)
@bind var<storage, read_write> xq_scale: array<vec2f>; // (n, GROUPS): scale, scale x sum of the group
#include "lib/reduce.wgsl"

const GROUPS = COLS / 32u;
#if SG >= 4
const LANES = 4u; // threads of a group
#else
const LANES = 1u;
#endif
const PORTION = 8u / LANES; // vectors of a thread

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
  let i = wid.x * WG + t;
  let mine = i < GROUPS * LANES; // the others exchange with these, and write nothing
  let g = min(i / LANES, GROUPS - 1u);
  let first = g * 8u + i % LANES * PORTION;
  var v = array<vec4f, PORTION>();
  var top = vec4f(0);
  for (var j = 0u; j < PORTION; j++) {
    v[j] = x[x0 + first + j] * scale;
#if NORM
    v[j] *= norm[first + j];
#endif
    top = max(top, abs(v[j]));
  }
  var most = max(max(top.x, top.y), max(top.z, top.w));
#if SG >= 4
  most = max(most, subgroupShuffleXor(most, 1u));
  most = max(most, subgroupShuffleXor(most, 2u));
#endif
  let step = most / 127.0;
  let inverse = select(0.0, 127.0 / most, most > 0.0);
  var words = array<u32, PORTION>();
  var sum = 0;
  for (var j = 0u; j < PORTION; j++) {
    words[j] = pack4xI8(vec4i(round(v[j] * inverse)));
    sum += dot4I8Packed(words[j], 0x01010101u);
  }
#if SG >= 4
  sum += subgroupShuffleXor(sum, 1u);
  sum += subgroupShuffleXor(sum, 2u);
#endif
  if (mine) {
    let at = m * GROUPS + g;
    for (var j = 0u; j < PORTION; j++) {
      xq[at * 8u + i % LANES * PORTION + j] = words[j];
    }
    if (i % LANES == 0u) {
      xq_scale[at] = vec2f(step, step * f32(sum));
    }
  }
}
