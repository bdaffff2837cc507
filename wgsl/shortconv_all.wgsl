// As shortconv.wgsl, of an encoder: y[m] = c[m] * sum over k < KERNEL_SIZE of weights[k] * (b * z)[m + k - KERNEL_SIZE / 2],
// per channel, of the tokens in m's sequence. They are all in the batch. Grid (COLS / THREADS, tokens).
#param COLS // channels
#param KERNEL_SIZE // tokens, an odd number
#param THREADS

struct Params {
  x_stride: u32, // floats between tokens of x
  y_stride: u32,
}
#include "lib/state.wgsl"
#include "lib/segments.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: States;
@bind var<storage, read> x: array<f32>; // (n, x_stride): b, c and z of each token
@bind var<storage, read> weights: array<f32>; // (COLS, KERNEL_SIZE)
@bind var<storage, read_write> y: array<f32>; // (n, y_stride)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = id.x;
  let m = id.y;
  if (m >= state.tokens[0].n || i >= COLS) {
    return;
  }
  let pos = state.tokens[0].pos;
  let first = max(segment_begin(m), pos) - pos + KERNEL_SIZE / 2u; // as m + k counts
  let end = segment_end(m) - pos + KERNEL_SIZE / 2u;
  var sum = 0.0;
  for (var k = 0u; k < KERNEL_SIZE; k++) {
    if (m + k >= first && m + k < end) {
      let at = (m + k - KERNEL_SIZE / 2u) * p.x_stride + i;
      sum = fma(weights[i * KERNEL_SIZE + k], x[at] * x[at + 2u * COLS], sum);
    }
  }
  y[m * p.y_stride + i] = x[m * p.x_stride + COLS + i] * sum;
}
