// AltUp's correction (Baykal et al. 2023): what the layer made of the first stream, x[m], less its prediction y[m, 0], is
// added to every stream with factors that the router chooses for token m. x[m] = the first stream, `scaled` the same
// times weights, column by column. ROUTED: before that, x[m] += the RMS norm of out[m], the layer's last block. Grid
// (tokens), a workgroup for each.
struct Params {
  scale: f32, // of the router's logits
  eps: f32, // of norms
}
@bind var<uniform> p: Params;
const FACTORS = STREAMS;
#if ROUTED
#include "lib/reduce.wgsl"
@bind var<storage, read> out: array<vec4f>; // (n, VECS)
#endif
#include "lib/altup.wgsl"
@bind var<storage, read> norms: array<vec4f>; // weights of `scaled`, then of x's norm and out's (ROUTED); COLS each
@bind var<storage, read_write> y: array<vec4f>; // (n, STREAMS, VECS)
@bind var<storage, read_write> x: array<vec4f>; // (n, VECS)
@bind var<storage, read_write> scaled: array<vec4f>; // (n, VECS)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.x;
  let y0 = m * STREAMS * VECS;
  // One variable per vector: all loads are in flight together.
#for i in VECS_PER_THREAD
  let at${i} = t + ${i}u * WG;
  var x${i} = vec4f(0);
#if ROUTED
  var out${i} = vec4f(0);
#endif
#for s in STREAMS
  var v${s}_${i} = vec4f(0);
#endfor
  if (at${i} < VECS) {
    x${i} = x[m * VECS + at${i}];
#if ROUTED
    out${i} = only_columns(at${i}, out[m * VECS + at${i}]);
#endif
#for s in STREAMS
    v${s}_${i} = y[y0 + ${s}u * VECS + at${i}];
#endfor
  }
#endfor
  var squares = 0.0;
#if ROUTED
  var out_squares = 0.0;
#for i in VECS_PER_THREAD
  out_squares += dot(out${i}, out${i});
#endfor
  let out_scale = inverseSqrt(workgroup_sum(out_squares, t) / f32(COLS) + p.eps);
#for i in VECS_PER_THREAD
  if (at${i} < VECS) {
    x${i} = fma(out${i} * norms[2u * (COLS / 4u) + at${i}], vec4f(out_scale), x${i});
    let v = only_columns(at${i}, x${i});
    squares += dot(v, v);
    route_x(at${i}, v * norms[COLS / 4u + at${i}]);
  }
#endfor
#endif
  choose_factors(m, squares, t);
#for i in VECS_PER_THREAD
  if (at${i} < VECS) {
    let change = x${i} - v0_${i};
#for s in STREAMS
    let corrected${s} = fma(vec4f(1.0 + factor[${s}u]), change, v${s}_${i});
    y[y0 + ${s}u * VECS + at${i}] = corrected${s};
#endfor
    x[m * VECS + at${i}] = corrected0;
    scaled[m * VECS + at${i}] = only_columns(at${i}, corrected0 * norms[at${i}]);
  }
#endfor
}
