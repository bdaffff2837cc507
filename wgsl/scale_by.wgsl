// x[m] *= factor[0], a weight of the model. Grid (VECS / THREADS, tokens).
#param VECS // vec4 of a row
#param THREADS

#include "lib/state.wgsl"
@bind var<storage, read> state: State;
@bind var<storage, read> factor: array<f32>;
@bind var<storage, read_write> x: array<vec4f>; // (n, VECS)

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.y < state.n && id.x < VECS) {
    x[id.y * VECS + id.x] *= factor[0];
  }
}
