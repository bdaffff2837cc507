// y = W x for one vector, that of the batch's last token: the dispatch that decoding spends its time in. W is (rows, COLS), dequantised on the way.
//
// A workgroup is TR x TK threads: TK threads share a row, each taking every TK-th group of 32 columns, and each thread
// works on R rows at once, so that x is loaded once for all of them. What else one dispatch does:
//   DOT8      x is first rounded to bytes (quantize_x.wgsl), and integers meet integers
//   NORM      x is normalised first (RMS): y = W (x * norm) / rms(x). The sum of squares rides along.
//   EPILOGUE  "store" y = ..., "add" y += ..., "gated" y[i] = activation(row i) * row (i + rows / 2),
//             "qkv" queries and keys are rotated (RoPE), keys and values appended to the cache at state.pos
#param DOT8
#include "matvec_inputs.wgsl"
@bind var<storage, read> x: array<vec4f>; // (n, COLS padded)

#if DOT8
#include "quantize_x.wgsl"
#endif
#if DOT8 and NORM
#include "reduce.wgsl"
#endif
#if DOT8
const SLOTS = R; // sums of a thread: its rows
#else
const SLOTS = R + NORM; // and the sum of squares
#endif
var<workgroup> red: array<f32, SLOTS * WG>;

fn result(slot: u32, scale: f32, row: u32) -> f32 {
  let at = (slot / R * SLOTS + slot % R) * TK;
#if BIAS
  return red[at] * scale + bias[p.row0 + row];
#else
  return red[at] * scale;
#endif
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) wgs: vec3u, @builtin(local_invocation_index) t: u32) {
  let tk = t % TK;
  let tr = t / TK;
  let base = (wid.y * wgs.x + wid.x) * RT;
  let x0 = (count() - 1u) * W_GROUPS * 8u;
  var acc: array<f32, SLOTS>;
#if DOT8
  var squares = quantize_x(x0, t);
#if NORM
  squares = workgroup_sum(squares, t);
#else
  workgroupBarrier();
#endif
  for (var g = tk; g < W_GROUPS; g += TK) {
    let xa = xq[2u * g];
    let xb = xq[2u * g + 1u];
    let xs = xq_scale[g];
    for (var r = 0u; r < R; r++) {
      acc[r] += w_dot(min(row_of(base, tr * R + r), p.rows - 1u), g, xa, xb, xs.x, xs.y);
    }
  }
#else
  for (var g = tk; g < W_GROUPS; g += TK) {
    var xs: array<vec4f, 8>;
    for (var i = 0u; i < 8u; i++) {
      xs[i] = x[x0 + g * 8u + i];
      if (COLS % 32u != 0u) { // what lies behind the row is not ours
        xs[i] = select(vec4f(0), xs[i], 32u * g + 4u * i + vec4u(0, 1, 2, 3) < vec4u(COLS));
      }
#if NORM
      acc[R] += dot(xs[i], xs[i]);
      xs[i] *= norm[g * 8u + i];
#endif
    }
    for (var r = 0u; r < R; r++) {
      let w = w_group(min(row_of(base, tr * R + r), p.rows - 1u), g);
      var sum = w[0] * xs[0];
      for (var i = 1u; i < 8u; i++) {
        sum = fma(w[i], xs[i], sum);
      }
      acc[r] += sum.x + sum.y + sum.z + sum.w;
    }
  }
#endif
  // Sum over the TK threads of a row, all slots together.
  var width = 1u;
#if SG
  for (; width < min(SG, TK); width *= 2u) {
    for (var s = 0u; s < SLOTS; s++) {
      acc[s] += subgroupShuffleXor(acc[s], width);
    }
  }
#endif
  for (var s = 0u; s < SLOTS; s++) {
    red[(tr * SLOTS + s) * TK + tk] = acc[s];
  }
  for (; width < TK; width *= 2u) {
    workgroupBarrier();
    if (tk % (2u * width) == 0u) {
      for (var s = 0u; s < SLOTS; s++) {
        let at = (tr * SLOTS + s) * TK + tk;
        red[at] += red[at + width];
      }
    }
  }
  workgroupBarrier();
#if NORM
#if DOT8
  let scale = inverseSqrt(squares / f32(COLS) + p.eps);
#else
  let scale = inverseSqrt(red[R * TK] / f32(COLS) + p.eps);
#endif
#else
  let scale = 1.0;
#endif
#if EPILOGUE == "gated"
  let row = base / 2u + t;
  if (2u * t < RT && 2u * row < p.rows) {
    let gate = result(2u * t, scale, row);
    y[p.row0 + row] = gated(gate, result(2u * t + 1u, scale, row + p.rows / 2u));
  }
#else
#if EPILOGUE == "qkv"
  if (4u * t < RT && base + 4u * t < p.rows) {
    var v: vec4f;
    for (var i = 0u; i < 4u; i++) {
      v[i] = result(4u * t + i, scale, row_of(base, 4u * t + i));
    }
    rope_store((base + 4u * t) / 4u, v, 0u, 0u);
  }
#else
  if (t < RT && base + t < p.rows) {
#if EPILOGUE == "add"
    y[p.row0 + base + t] += result(t, scale, base + t);
#else
    y[p.row0 + base + t] = result(t, scale, base + t);
#endif
  }
#endif
#endif
}
