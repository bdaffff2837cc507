// Writes the last inputs of a convolution (ssm_conv.wgsl) after each of a batch's last two positions. Grid
// (CHANNELS / THREADS).
#param CHANNELS
#param TAPS // earlier inputs
#param THREADS

struct Params {
  x_stride: u32, // floats between tokens of x
  first: u32, // the first channel's column of x
}
#include "lib/halves.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> x: array<f32>; // (n, x_stride)
@bind var<storage, read_write> windows: array<f32>; // (slots, 2, TAPS, CHANNELS): the latest input first
#include "lib/window.wgsl"

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = id.x;
  let n = count();
  if (i >= CHANNELS || n == 0u) {
    return;
  }
  let last = n - 1u;
  let before = max(last, 1u) - 1u; // the last but one, if there is one
  var inputs: array<f32, 2u * TAPS>; // all are read before any is written: they may be in the same half
#for k in TAPS
  inputs[${k}] = input_before(before, 0u, ${k}u, i);
  inputs[TAPS + ${k}] = input_before(last, 0u, ${k}u, i);
#endfor
  for (var m = before; m <= last; m++) {
    let to = half_after(pos_of(m), seq_of(m)) * TAPS * CHANNELS + i;
    let base = select(0u, TAPS, m == last);
    windows[to] = x[m * p.x_stride + p.first + i];
    for (var k = 1u; k < TAPS; k++) {
      windows[to + k * CHANNELS] = inputs[base + k - 1u];
    }
  }
}
