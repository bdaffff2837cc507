// y[m] = x[m] / rms(x[m]) * norm (RMS norm, Zhang and Sennrich 2019). MEAN: x[m] - mean(x[m]) in place of x[m] (layer
// norm, Ba et al. 2016). ADD: y[m] += ... Grid (tokens, rows of a token), a workgroup per row.
#param COLS // columns of x
#param WG
#param MEAN
#param BIAS // 1: a bias is added
#param ADD
#param SG
#param X16 // 1: x is f16
#if X16
#param F16
#endif
#param X_STRIDE // vec4 between rows of x, if they are not COLS padded to 32
#param Y16 // 1: y is f16
#if Y16
#param F16
#endif

struct Params {
  eps: f32,
}
@bind var<uniform> p: Params;
#if X16
@bind var<storage, read> x: array<vec4<f16>>; // (n, COLS padded to 32, or 4 X_STRIDE)
#else
@bind var<storage, read> x: array<vec4f>; // the same
#endif
@bind var<storage, read> norm: array<vec4f>; // (COLS padded to 32), zeros at the end
#if BIAS
@bind var<storage, read> bias: array<vec4f>;
#endif
#if Y16
@bind var<storage, read_write> y: array<vec4<f16>>;
#else
@bind var<storage, read_write> y: array<vec4f>;
#endif
#include "lib/reduce.wgsl"

const VECS = (COLS + 31u) / 32u * 8u;

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3u,
  @builtin(num_workgroups) wgs: vec3u,
  @builtin(local_invocation_index) t: u32,
) {
  let at = (wid.x * wgs.y + wid.y) * VECS;
#if X_STRIDE
  let x_at = wid.x * X_STRIDE;
#else
  let x_at = at;
#endif
  // One variable per vector: all loads are in flight together, and nothing is loaded twice. The padding's contents are
  // undefined, and count as zeros.
#for i in ((COLS + 31) // 32 * 8 + WG - 1) // WG
  let inside${i} = 4u * (t + ${i}u * WG) + vec4u(0, 1, 2, 3) < vec4u(COLS);
  var v${i} = vec4f(0);
  if (t + ${i}u * WG < VECS) {
    v${i} = select(vec4f(0), vec4f(x[x_at + t + ${i}u * WG]), inside${i});
  }
#endfor
#if MEAN
  var total = 0.0;
#for i in ((COLS + 31) // 32 * 8 + WG - 1) // WG
  total += dot(v${i}, vec4f(1));
#endfor
  let mean = workgroup_sum(total, t) / f32(COLS);
#for i in ((COLS + 31) // 32 * 8 + WG - 1) // WG
  v${i} = select(vec4f(0), v${i} - mean, inside${i});
#endfor
#endif
  var sum = 0.0;
#for i in ((COLS + 31) // 32 * 8 + WG - 1) // WG
  sum += dot(v${i}, v${i});
#endfor
  let scale = inverseSqrt(workgroup_sum(sum, t) / f32(COLS) + p.eps);
#for i in ((COLS + 31) // 32 * 8 + WG - 1) // WG
  if (t + ${i}u * WG < VECS) {
    let i = t + ${i}u * WG;
#if ADD
    var v = fma(v${i} * norm[i], vec4f(scale), y[at + i]); // as in lib/post_norm.wgsl
#else
    var v = v${i} * norm[i] * scale;
#endif
#if BIAS
    v += bias[i];
#endif
#if Y16
    y[at + i] = vec4<f16>(v);
#else
    y[at + i] = v;
#endif
  }
#endfor
}
