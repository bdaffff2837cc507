// What the scan of RWKV-7 reads, in place, from a row's projections; for each head of COLS columns:
//   decay     exp(-exp(-1/2) sigmoid(decay))
//   value     value + (the first layer's value - value) sigmoid(its own mixture); the first layer stores its own
//   removed   key * key_factors, of length 1
//   rate      removed * a, where a = sigmoid(rate)
//   key       key * (1 + (a - 1) rate_factors)
// Peng et al. 2025, "RWKV-7 Goose". Grid (tokens, heads), a workgroup for each.
#param COLS
#param HEADS
#param FIRST // 1: this is the first layer
#param WG
#param SG

struct Params {
  stride: u32, // floats between tokens of x
  decay: u32, // columns of x
  rate: u32,
  key: u32,
  value: u32,
  removed: u32, // before: the mixture with the first layer's value
  first_stride: u32,
}
@bind var<uniform> p: Params;
@bind var<storage, read> factors: array<f32>; // (2, HEADS, COLS): of keys, of rates
@bind var<storage, read_write> x: array<f32>; // (n, stride)
#if FIRST
@bind var<storage, read_write> first_values: array<f32>; // (n, first_stride): the first layer's values
#else
@bind var<storage, read> first_values: array<f32>;
#endif
#include "lib/reduce.wgsl"

const LEAST = 1e-12; // length of a key

fn sigmoid(v: f32) -> f32 {
  return 1.0 / (1.0 + exp(-v));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) t: u32) {
  let at = wid.x * p.stride + wid.y * COLS;
  let column = wid.y * COLS;
  var sum = 0.0;
  for (var i = t; i < COLS; i += WG) {
    let k = x[at + p.key + i] * factors[column + i];
    sum += k * k;
  }
  let scale = 1.0 / max(sqrt(workgroup_sum(sum, t)), LEAST);
  for (var i = t; i < COLS; i += WG) {
    let k = x[at + p.key + i];
    let removed = k * factors[column + i] * scale;
    let a = sigmoid(x[at + p.rate + i]);
    let value = x[at + p.value + i];
    let place = wid.x * p.first_stride + column + i;
#if FIRST
    first_values[place] = value;
#else
    x[at + p.value + i] = value + (first_values[place] - value) * sigmoid(x[at + p.removed + i]);
#endif
    x[at + p.decay + i] = exp(-0.6065306597126334 * sigmoid(x[at + p.decay + i]));
    x[at + p.rate + i] = removed * a;
    x[at + p.key + i] = k * (1.0 + (a - 1.0) * factors[HEADS * COLS + column + i]);
    x[at + p.removed + i] = removed;
  }
}
