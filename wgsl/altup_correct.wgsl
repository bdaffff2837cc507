// AltUp's correction (Baykal et al. 2023): what the layer made of the first stream, x[m], less its prediction y[m, 0], is
// added to every stream with factors that the router chooses for token m. x[m] = the first stream, `scaled` the same
// times weights, column by column. Grid (VECS / THREADS, tokens).
#param STREAMS
#param VECS // vec4 of a stream
#param THREADS

struct Params {
  scale: f32, // of the router's logits
}
#include "lib/state.wgsl"
@bind var<uniform> p: Params;
@bind var<storage, read> state: State;
#include "lib/altup.wgsl"
@bind var<storage, read> factors: array<f32>; // (STREAMS, STREAMS): to, router
@bind var<storage, read> weights: array<vec4f>; // (VECS)
@bind var<storage, read_write> y: array<vec4f>; // (n, STREAMS, VECS)
@bind var<storage, read_write> x: array<vec4f>; // (n, VECS)
@bind var<storage, read_write> scaled: array<vec4f>; // (n, VECS)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  if (m >= state.n || id.x >= VECS) {
    return;
  }
  let chosen = routed(m);
  let at = m * VECS + id.x;
  let change = x[at] - y[m * STREAMS * VECS + id.x];
  for (var s = 0u; s < STREAMS; s++) {
    var factor = 1.0;
    for (var k = 0u; k < STREAMS; k++) {
      factor += factors[s * STREAMS + k] * chosen[k];
    }
    let corrected = y[(m * STREAMS + s) * VECS + id.x] + factor * change;
    y[(m * STREAMS + s) * VECS + id.x] = corrected;
    if (s == 0u) {
      x[at] = corrected;
      scaled[at] = corrected * weights[id.x];
    }
  }
}
