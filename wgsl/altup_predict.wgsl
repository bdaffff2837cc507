// AltUp's prediction (Baykal et al. 2023): every residual stream y[m, s] += a combination of all streams, with factors
// that the router chooses for token m. x[m] = the first of them. Grid (VECS / THREADS, tokens).
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
@bind var<storage, read> factors: array<f32>; // (STREAMS, STREAMS, STREAMS): to, from, router
@bind var<storage, read_write> y: array<vec4f>; // (n, STREAMS, VECS)
@bind var<storage, read_write> x: array<vec4f>; // (n, VECS)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  if (m >= state.n || id.x >= VECS) {
    return;
  }
  let chosen = routed(m);
  var old: array<vec4f, STREAMS>;
  for (var s = 0u; s < STREAMS; s++) {
    old[s] = y[(m * STREAMS + s) * VECS + id.x];
  }
  for (var s = 0u; s < STREAMS; s++) {
    var sum = old[s];
    for (var other = 0u; other < STREAMS; other++) {
      var factor = 0.0;
      for (var k = 0u; k < STREAMS; k++) {
        factor += factors[(s * STREAMS + other) * STREAMS + k] * chosen[k];
      }
      sum += factor * old[other];
    }
    y[(m * STREAMS + s) * VECS + id.x] = sum;
    if (s == 0u) {
      x[m * VECS + id.x] = sum;
    }
  }
}
