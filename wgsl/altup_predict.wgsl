// AltUp's prediction (Baykal et al. 2023): every residual stream y[m, s] += a combination of all streams, with factors
// that the router chooses for token m. x[m] = the first of them. Grid (tokens), a workgroup for each.
#param ADD // 1: before that, all streams but the first += the RMS norm of out[m], the result of the layer before

struct Params {
  scale: f32, // of the router's logits
  eps: f32, // of norms
}
@bind var<uniform> p: Params;
const FACTORS = STREAMS * STREAMS; // to, from
#if ADD or ROUTED
#include "lib/reduce.wgsl"
@bind var<storage, read> norms: array<vec4f>; // the router's (ROUTED), then out's (ADD); COLS each
#endif
#include "lib/altup.wgsl"
#if ADD
@bind var<storage, read> out: array<vec4f>; // (n, VECS)
#endif
@bind var<storage, read_write> y: array<vec4f>; // (n, STREAMS, VECS)
@bind var<storage, read_write> x: array<vec4f>; // (n, VECS)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.x;
  let y0 = m * STREAMS * VECS;
  // One variable per vector: all loads are in flight together.
#for i in VECS_PER_THREAD
  let at${i} = t + ${i}u * WG;
#for s in STREAMS
  var v${s}_${i} = vec4f(0);
#endfor
#if ADD
  var out${i} = vec4f(0);
#endif
  if (at${i} < VECS) {
#for s in STREAMS
    v${s}_${i} = y[y0 + ${s}u * VECS + at${i}];
#endfor
#if ADD
    out${i} = only_columns(at${i}, out[m * VECS + at${i}]);
#endif
  }
#endfor
#if ADD
  var out_squares = 0.0;
#for i in VECS_PER_THREAD
  out_squares += dot(out${i}, out${i});
#endfor
  let out_scale = inverseSqrt(workgroup_sum(out_squares, t) / f32(COLS) + p.eps);
#for i in VECS_PER_THREAD
  if (at${i} < VECS) {
    out${i} *= norms[ROUTED * COLS / 4u + at${i}] * out_scale;
  }
#for s in 1, STREAMS
  v${s}_${i} += out${i};
#endfor
#endfor
#endif
  var squares = 0.0;
#if ROUTED
#for i in VECS_PER_THREAD
  if (at${i} < VECS) {
    let v = only_columns(at${i}, v0_${i});
    squares += dot(v, v);
    route_x(at${i}, v * norms[at${i}]);
  }
#endfor
#endif
  choose_factors(m, squares, t);
#for i in VECS_PER_THREAD
  if (at${i} < VECS) {
#for s in STREAMS
    var sum${s} = v${s}_${i};
#for other in STREAMS
    sum${s} = fma(vec4f(factor[${s}u * STREAMS + ${other}u]), v${other}_${i}, sum${s});
#endfor
    y[y0 + ${s}u * VECS + at${i}] = sum${s};
#endfor
    x[m * VECS + at${i}] = sum0;
  }
#endfor
}
