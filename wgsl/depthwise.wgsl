// y[m, c] = sum over t < TAPS of weight[m, t] * kernel[c, t] * x[id[m, t], c]: a convolution of each channel on its own. A tap of
// weight 0 is outside of the input. A bias and a batch norm may follow. Grid (CHANNELS / THREADS, tokens).
#param QUANT // fragment of wgsl/quants that reads the kernel
#param CHANNELS
#param TAPS // places of the kernel; columns of a row of it
#param TERMS // vectors of `terms`: 0; 1: a bias; 3: a bias, then the factor and the shift of a batch norm; 4: mean, variance,
// factor and shift of one
#param THREADS

struct Params {
  stride: u32, // floats between rows of x and of y
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> taps: array<vec2u>; // (n, TAPS): row of x, bits of its f32 weight
const W_GROUPS = (TAPS + 31u) / 32u;
#include "quants/${QUANT}.wgsl"
@bind var<storage, read> x: array<f32>; // (rows, stride)
#if TERMS
@bind var<storage, read> terms: array<f32>; // (TERMS * CHANNELS)
#endif
@bind var<storage, read_write> y: array<f32>; // (n, stride)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let c = id.x;
  let m = id.y;
  if (m >= state.n || c >= CHANNELS) {
    return;
  }
  var sum = 0.0;
  for (var g = 0u; g < W_GROUPS; g++) {
    var kernel = w_group(c, g);
    for (var t = 0u; t < min(32u, TAPS - 32u * g); t++) {
      let tap = taps[m * TAPS + 32u * g + t];
      if (tap.y != 0u) {
        sum = fma(bitcast<f32>(tap.y) * kernel[t / 4u][t % 4u], x[tap.x * p.stride + c], sum);
      }
    }
  }
#if TERMS == 1 or TERMS == 3
  sum += terms[c];
#endif
#if TERMS == 3
  sum = fma(sum, terms[CHANNELS + c], terms[2u * CHANNELS + c]);
#endif
#if TERMS == 4
  sum = fma((sum - terms[c]) / sqrt(terms[CHANNELS + c]), terms[2u * CHANNELS + c], terms[3u * CHANNELS + c]);
#endif
  y[m * p.stride + c] = sum;
}
