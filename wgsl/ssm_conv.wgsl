// y[m] = silu(sum over k <= TAPS of weights[TAPS - k] * x[m - k], + bias) for each channel: the causal convolution before
// the scan of a state. APART: the inputs that have weights are so many tokens apart.
// Grid (CHANNELS / THREADS, runs), or with tiles (CHANNELS / THREADS, tokens / TILE).
// The inputs before the batch are in the sequence's window. Without tiles, this kernel also writes the window; tiles of
// one run would read what others write, so ssm_window.wgsl follows them.
#param CHANNELS
#param TAPS // earlier inputs
#param TILE // tokens of a workgroup; 0: a whole run
#param APART // inputs between those that count; divides TAPS
#param BIAS // 1: a bias is added
#param MATRIX // 1: the weights are a matrix
#if MATRIX
#param QUANT // fragment of wgsl/quants that reads it
#endif
#param THREADS

struct Params {
  x_stride: u32, // floats between tokens of x
  first: u32, // the first channel's column of x
  y_stride: u32,
}
#include "lib/halves.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
#if MATRIX
const W_GROUPS = 1u;
#include "quants/${QUANT}.wgsl"
#else
@bind var<storage, read> weights: array<f32>; // (CHANNELS, SIZE); the last weight is for the token itself
#endif
#if BIAS
@bind var<storage, read> bias: array<f32>; // (CHANNELS)
#endif
#if TILE
@bind var<storage, read> windows: array<f32>; // (slots, 2, TAPS, CHANNELS): the latest input first
#else
@bind var<storage, read_write> windows: array<f32>;
#endif
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)
#include "lib/window.wgsl"

const SIZE = TAPS / APART + 1u;

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = id.x;
#if TILE
  let first = id.y * TILE;
  let begin = 0u;
  let end = min(first + TILE, count());
  if (i >= CHANNELS || first >= end) {
    return;
  }
#else
  let first = id.y;
  let begin = id.y;
  if (i >= CHANNELS || first >= count() || !begins_run(first)) {
    return;
  }
  let end = run_end(first);
#endif
#if MATRIX
  var group = w_group(i, 0u);
#endif
  var kernel: array<f32, SIZE>;
  for (var k = 0u; k < SIZE; k++) {
#if MATRIX
    kernel[k] = group[k / 4u][k % 4u];
#else
    kernel[k] = weights[i * SIZE + k];
#endif
  }
  var earlier: array<f32, TAPS>; // inputs before token m, the latest first
#for k in TAPS
  earlier[${k}] = input_before(first, begin, ${k}u, i);
#endfor
  for (var m = first; m < end; m++) {
    if (offset_of(m) == 0u) {
#for k in TAPS
      earlier[${k}] = 0.0;
#endfor
    }
    let own = x[m * p.x_stride + p.first + i];
    var sum = own * kernel[SIZE - 1u];
#for k in TAPS // APART
    sum += earlier[(${k} + 1) * APART - 1] * kernel[SIZE - 2u - ${k}u];
#endfor
#if BIAS
    sum += bias[i];
#endif
    y[m * p.y_stride + i] = sum / (1.0 + exp(-sum));
#for k in TAPS - 1
    earlier[TAPS - 1u - ${k}u] = earlier[TAPS - 2u - ${k}u];
#endfor
    earlier[0] = own;
#if not TILE
    if (m + 2u >= end) {
      let to = half_after(pos_of(m), seq_of(m)) * TAPS * CHANNELS + i;
#for k in TAPS
      windows[to + ${k}u * CHANNELS] = earlier[${k}];
#endfor
    }
#endif
  }
}
