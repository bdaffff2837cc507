// y[m] += the sum over k of weights[m, k] * x[m, k]. Grid (VECS / THREADS, tokens).
#param USED // rows of x for each token
#param VECS // vectors of a row
#param THREADS

#include "lib/state.wgsl"
@bind var<storage, read> state: State;
@bind var<storage, read> x: array<vec4f>; // (n, USED, VECS)
@bind var<storage, read> weights: array<f32>; // (n, USED)
@bind var<storage, read_write> y: array<vec4f>; // (n, VECS)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let m = id.y;
  if (m >= state.n || id.x >= VECS) {
    return;
  }
  var sum = vec4f(0);
  for (var k = 0u; k < USED; k++) {
    sum += weights[m * USED + k] * x[(m * USED + k) * VECS + id.x];
  }
  y[m * VECS + id.x] += sum;
}
