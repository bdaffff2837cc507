// y[m, (c * PATCH + dy) * PATCH + dx] = values[c, pixel (dy, dx) of patch m]: patches as a convolution's kernel sees them,
// channel by channel. Grid (3 * PATCH * PATCH / THREADS, tokens).
#param PATCH // pixels of a side
#param Y16 // 1: y is f16
#param THREADS

struct Params {
  y_stride: u32,
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
@bind var<storage, read> pixels: array<u32>; // bytes of all pictures: rows of red, green and blue
@bind var<storage, read> places: array<vec2u>; // (n): byte of a patch's first pixel, bytes of a row of its picture; 0: no patch
@bind var<storage, read> values: array<f32>; // (3, 256): of each byte, less the mean, over the deviation
#include "lib/result.wgsl"

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y >= state.n || id.x >= 3u * PATCH * PATCH) {
    return;
  }
  let c = id.x / (PATCH * PATCH);
  let place = places[id.y];
  var v = 0.0;
  if (place.y != 0u) {
    let at = place.x + id.x / PATCH % PATCH * place.y + id.x % PATCH * 3u + c;
    v = values[c * 256u + ((pixels[at / 4u] >> (at % 4u * 8u)) & 255u)];
  }
  y[id.y * p.y_stride + id.x] = Value(v);
}
