// The first two convolutions of a FastConformer: 3 x 3, stride 2, padded by 1 with zeros, then ReLU, then a depthwise one of the
// same kind: y[m, b, c], a quarter of the frames and of the mel bins. A workgroup computes the results of the first one that
// it needs from 7 x 7 values of the spectrum: to store them would take four times the memory of y. Grid (CHANNELS / THREADS, rows of frames,
// bins).
#param CHANNELS
#param BINS // mel bins of a frame
#param QUANT // fragment of wgsl/quants that reads both kernels, which are stacked: (2 * CHANNELS, 9)
#param THREADS // at least 49

struct Params {
  x_stride: u32, // of a frame
  y_stride: u32, // of a row of frames
  part_stride: u32, // of a bin
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<f32>; // (frames, x_stride)
@bind var<storage, read> length: array<u32>; // (1): frames of the spectrum
@bind var<storage, read> biases: array<f32>; // (2 * CHANNELS)
const W_GROUPS = 1u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read_write> y: array<f32>; // (rows, bins, part_stride)

const SIDE = 7u; // of the part of the spectrum that a result depends on
var<workgroup> part: array<f32, SIDE * SIDE>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let m = wid.y;
  if (m >= state.n) {
    return;
  }
  let frames = i32(length[0]);
  if (t < SIDE * SIDE) {
    let frame = 4 * i32(m) - 3 + i32(t / SIDE);
    let bin = 4 * i32(wid.z) - 3 + i32(t % SIDE);
    var value = 0.0;
    if (frame >= 0 && frame < frames && bin >= 0 && bin < i32(BINS)) {
      value = x[u32(frame) * p.x_stride + u32(bin)];
    }
    part[t] = value;
  }
  workgroupBarrier();
  let c = wid.x * THREADS + t;
  if (c >= CHANNELS) {
    return;
  }
  var first = w_group(c, 0u);
  var second = w_group(CHANNELS + c, 0u);
  var sum = biases[CHANNELS + c];
  for (var place = 0u; place < 9u; place++) {
    let row = 2 * i32(m) - 1 + i32(place / 3u);
    let column = 2 * i32(wid.z) - 1 + i32(place % 3u);
    if (row < 0 || row >= (frames + 1) / 2 || column < 0 || column >= (i32(BINS) + 1) / 2) {
      continue; // the second convolution's padding
    }
    var value = biases[c];
    for (var tap = 0u; tap < 9u; tap++) {
      let at = (2u * (place / 3u) + tap / 3u) * SIDE + 2u * (place % 3u) + tap % 3u;
      value = fma(first[tap / 4u][tap % 4u], part[at], value);
    }
    sum = fma(second[place / 4u][place % 4u], max(value, 0.0), sum);
  }
  y[m * p.y_stride + wid.z * p.part_stride + c] = sum;
}
